"""One answer from a model that streams: given by the model beside it that answers once, in its name.

So clients that stream and clients that want the whole, as the reference's are, ask one deployment.
"""

from __future__ import annotations

import re
from collections.abc import Collection

SUFFIX = "_offline"
NAME = re.compile(rb'"model_name":"[a-z0-9_]+"')
NAME_WITHIN = 2048
"""Bytes of an answer in which the model's name stands; an id has at most 256 characters before it."""


def whole_models(models: Collection[str]) -> dict[str, str]:
    """By the name of a model that streams, the one that answers in its place."""
    return {name: name + SUFFIX for name in models if name + SUFFIX in models}


def in_the_name_of(model: str, answer: bytes) -> tuple[bytes, int]:
    """An answer of HTTP that says it is another model's, and how many bytes that makes it longer."""
    name = b'"model_name":"' + model.encode() + b'"'
    renamed = NAME.sub(name, answer[:NAME_WITHIN], count=1) + answer[NAME_WITHIN:]
    return renamed, len(renamed) - len(answer)
