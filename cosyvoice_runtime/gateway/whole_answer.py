"""Unary calls of a streaming model are answered, in its name, by the model that answers once.

So clients that stream and clients that want the whole, as the reference's are, ask one deployment.
"""

from __future__ import annotations

import re
from collections.abc import Collection

SUFFIX = "_offline"
NAME = re.compile(rb'"model_name":"[a-z0-9_]+"')
NAME_WITHIN = 2048
"""The leading bytes of an answer that contain the model's name; the id before it has at most 256
characters."""


def whole_models(models: Collection[str]) -> dict[str, str]:
    """By a streaming model's name, the model that answers its unary calls."""
    return {name: name + SUFFIX for name in models if name + SUFFIX in models}


def in_the_name_of(model: str, answer: bytes) -> tuple[bytes, int]:
    """An HTTP answer with the model's name replaced, and the number of bytes by which it grew."""
    name = b'"model_name":"' + model.encode() + b'"'
    renamed = NAME.sub(name, answer[:NAME_WITHIN], count=1) + answer[NAME_WITHIN:]
    return renamed, len(renamed) - len(answer)
