"""Parameters of the functions and classes in use, as ``inspect`` read them from the release.

``*name`` is by keyword only, ``name=`` has a default.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

_RECORDED = json.loads(Path(__file__).with_name("signatures.json").read_text())
RELEASE: str = _RECORDED["release"]
SIGNATURES: dict[str, list[str]] = _RECORDED["signatures"]


def described(function: Callable[..., Any]) -> list[str]:
    """The same form for a function of the stand-in."""
    return [
        f"{'*' if parameter.kind is Parameter.KEYWORD_ONLY else ''}{parameter.name}"
        f"{'' if parameter.default is Parameter.empty else '='}"
        for parameter in inspect.signature(function).parameters.values()
    ]


def bind(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """What a call passes, by parameter; raises TypeError as the call would."""
    return dict(signature(name).bind(*arguments, **options).arguments)


def signature(name: str) -> Signature:
    """Of a function or class."""
    return Signature([_parameter(text) for text in SIGNATURES[name]])


def _parameter(text: str) -> Parameter:
    kind = Parameter.KEYWORD_ONLY if text.startswith("*") else Parameter.POSITIONAL_OR_KEYWORD
    default = None if text.endswith("=") else Parameter.empty
    return Parameter(text.strip("*="), kind, default=default)
