"""Names of the parameters of a callable, of Python, of nanobind or of pybind11."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

OPENING, CLOSING = "([{<", ")]}>"


def overloads(function: Callable[..., Any]) -> list[set[str]]:
    """Parameter names of each overload; empty if they can't be known.

    nanobind and pybind11 write a line ``name(parameter: type = default, ...) -> type`` for each into
    ``__doc__``; where there are several, pybind11 numbers them, under a heading that names none.
    """
    try:
        return [set(inspect.signature(function).parameters)]
    except (TypeError, ValueError):
        return [set(_names(line)) for line in _signature_lines(function)]


def _signature_lines(function: Any) -> list[str]:
    lines = (function.__doc__ or "").splitlines()
    return [line for line in lines if re.match(rf"(\d+\. )?{re.escape(function.__name__)}\((?!\*args)", line)]


def _names(line: str) -> Iterator[str]:
    for parameter in _split(line[line.index("(") + 1 :]):
        name = re.match(r"\s*(\w+)", parameter)
        if name:  # the star that makes the rest keyword-only is none
            yield name[1]


def _split(text: str) -> Iterator[str]:
    """Parts between commas outside brackets and quotes, up to the bracket that closes the list."""
    depth, quote, start = 0, "", 0
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in OPENING:
            depth += 1
        elif character in CLOSING and depth:
            depth -= 1
        elif character in (",", ")") and not depth:
            yield text[start:place]
            start = place + 1
            if character == ")":
                return
