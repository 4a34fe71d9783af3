"""Whether a library has the classes, functions and parameters that are used of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from cosyvoice_runtime.preflight.container import attempt
from cosyvoice_runtime.preflight.outcome import Outcome, failed, judged, unchecked

QUOTED_OR_BRACKETED = re.compile(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^][]*\]|\{[^{}]*\}|<[^<>]*>")


@dataclass(frozen=True)
class Symbol:
    """A class or function.

    Attributes:
        parameters: names that are passed to it, with spaces between them.
        attributes: names that are read from it, or from an instance.
    """

    module: str
    name: str
    parameters: str = ""
    attributes: str = ""


def check_symbols(used: Iterable[Symbol]) -> Iterator[Outcome]:
    """Every symbol is there, with the parameters that are passed to it.

    Args:
        used: by module.
    """
    for name, symbols in groupby(used, attrgetter("module")):
        module, failure = attempt(name)
        if failure:
            yield unchecked(name, failure)
        else:
            yield from (_look(symbol, module) for symbol in symbols)


def _look(symbol: Symbol, found: Any) -> Outcome:
    check = f"{symbol.module}.{symbol.name}"
    for name in symbol.name.split("."):
        if not hasattr(found, name):
            return failed(check, "does not exist")
        found = getattr(found, name)
    problems = [f"has no {name}" for name in symbol.attributes.split() if not hasattr(found, name)]
    if symbol.parameters:
        known = overloads(found.__init__ if isinstance(found, type) else found)  # type: ignore[misc]
        if not known and not problems:
            return unchecked(check, "its parameters can't be read")
        best = min(
            ([name for name in symbol.parameters.split() if name not in one] for one in known), key=len
        )
        problems += [f"takes no {name}" for name in best]
    return judged(check, problems)


def overloads(function: Callable[..., Any]) -> list[set[str]]:
    """Parameter names of each overload of Python's, nanobind's or pybind11's; empty if they can't be known.

    nanobind and pybind11 write a line ``name(parameter: type = default, ...) -> type`` for each into
    ``__doc__``; where there are several, pybind11 numbers them, under a heading that names none.
    """
    try:
        return [set(inspect.signature(function).parameters)]
    except (TypeError, ValueError):
        begins = rf"(?:\d+\. )?{re.escape(function.__name__)}\((?!\*args)(.*)"
        found = (re.match(begins, line) for line in (function.__doc__ or "").splitlines())
        return [_names(line[1]) for line in found if line]


def _names(parameters: str) -> set[str]:
    """Names before the bracket that closes the list; types and defaults may have brackets and commas, too."""
    while (shorter := QUOTED_OR_BRACKETED.sub("", parameters)) != parameters:
        parameters = shorter
    found = (re.match(r"\s*(\w+)", parameter) for parameter in parameters.partition(")")[0].split(","))
    return {name[1] for name in found if name}  # the star that makes the rest keyword-only is none
