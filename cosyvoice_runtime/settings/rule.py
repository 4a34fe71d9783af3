"""What a field of the settings accepts: its range or choices, and its form as text."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Number = TypeVar("Number", int, float)

AUTO = "auto"
AUTO_NUMBER = 0
"""Stands for ``auto`` in a field of type int; such a field's own range starts at 1."""


@dataclass(frozen=True)
class Rule:
    """Limits of one field.

    Attributes:
        low, high: inclusive range of a number.
        choices: the only texts accepted; empty for any.
        pattern: regular expression that a text has to match in full; ``wanted`` says it in words.
        auto: ``auto`` is accepted and resolved later.
    """

    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    pattern: str = ""
    wanted: str = ""
    auto: bool = False

    def accepts(self, value: object) -> bool:
        if self.auto and value in (AUTO, AUTO_NUMBER):
            return True
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self.low <= value <= self.high
        if self.choices:
            return value in self.choices
        return not self.pattern or re.fullmatch(self.pattern, str(value)) is not None

    def limit(self, kind: object) -> str:
        """The rule in words, for a message and for a table of settings."""
        return self._range(kind) + (f" or {AUTO}" if self.auto else "")

    def _range(self, kind: object) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.wanted:
            return self.wanted
        if kind in (int, float):
            noun = "a whole number" if kind is int else "a number"
            return noun if math.isinf(self.high) else f"{noun} from {_plain(self.low)} to {_plain(self.high)}"
        return {bool: "true or false", Path: "a path"}.get(kind, "a text")  # type: ignore[call-overload]


def _plain(number: float) -> str:
    return f"{number:.0f}" if float(number).is_integer() else f"{number:g}"


def between(default: Number, low: Number, high: Number) -> Number:
    """Field with a number from ``low`` to ``high``."""
    return _field(default, Rule(low=low, high=high))


def auto_between(low: int, high: int) -> int:
    """Field with a whole number that is chosen for the machine unless given."""
    return _field(AUTO_NUMBER, Rule(low=low, high=high, auto=True))


def one_of(default: str, *choices: str) -> str:
    """Field with one of a few words; ``auto`` among them makes it resolvable."""
    words = tuple(choice for choice in choices if choice != AUTO)
    return _field(default, Rule(choices=words, auto=AUTO in choices))


def matching(default: str, pattern: str, wanted: str, auto: bool = False) -> str:
    """Field with a text of a certain form."""
    return _field(default, Rule(pattern=pattern, wanted=wanted, auto=auto))


def _field(default: Any, rule: Rule) -> Any:
    return dataclasses.field(default=default, metadata={"rule": rule})


def parse(text: str, kind: object, rule: Rule) -> object:
    """Text to a value of ``kind``.

    Raises:
        ValueError: the text is no such value; whether it is in range is not looked at.
    """
    if kind is bool:
        return {"true": True, "false": False}[text.strip().lower()]
    if kind is int:
        return AUTO_NUMBER if rule.auto and text == AUTO else int(text)
    if kind is float:
        return float(text)
    if kind is Path:
        return Path(text)
    if kind is str:
        return text
    return tuple(part.strip() for part in text.split(",") if part.strip())


def write(value: object, rule: Rule) -> str:
    """The text that :func:`parse` reads back as ``value``."""
    if rule.auto and value == AUTO_NUMBER:
        return AUTO
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
