"""Parameters of the functions and classes in use, as they were read from the sources of each release.

``*name`` is by keyword only, ``name=`` has a default. Of a later release the file has what differs from the
first one; what it adds may be passed by keyword.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

_RECORDED = json.loads(Path(__file__).with_name("signatures.json").read_text())
RELEASES = tuple(_RECORDED)
SIGNATURES: dict[str, list[str]] = _RECORDED[RELEASES[0]]


def recorded(name: str, release: str) -> list[str]:
    """Parameters of a function or class."""
    if release == RELEASES[0]:
        return SIGNATURES[name]
    removed, added = (_RECORDED[release][change].get(name, []) for change in ("removed", "added"))
    return [*(text for text in SIGNATURES[name] if text not in removed), *added]


def described(function: Callable[..., Any]) -> list[str]:
    """The same form for a function of the stand-in."""
    return [
        f"{'*' if parameter.kind is Parameter.KEYWORD_ONLY else ''}{parameter.name}"
        f"{'' if parameter.default is Parameter.empty else '='}"
        for parameter in inspect.signature(function).parameters.values()
    ]


def signature(name: str, release: str) -> Signature:
    """Of a function or class."""
    return Signature([_parameter(text) for text in recorded(name, release)])


def _parameter(text: str) -> Parameter:
    kind = Parameter.KEYWORD_ONLY if text.startswith("*") else Parameter.POSITIONAL_OR_KEYWORD
    default = None if text.endswith("=") else Parameter.empty
    return Parameter(text.strip("*="), kind, default=default)
