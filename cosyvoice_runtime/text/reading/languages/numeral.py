"""Numbers as they are written: groups of digits, a fraction, a sign."""

from __future__ import annotations

import re
from dataclasses import dataclass

CIRCLED = "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳"
"""The numbers 1 to 20 in circles."""
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_DOTS_OF_GROUPS = re.compile(r"[1-9][0-9]{0,2}(?:\.[0-9]{3})+")
_DOTTED = re.compile(r"(.*)\.([0-9]{4,}|[0-9]{1,2})")


@dataclass(frozen=True)
class Numeral:
    """A number in digits.

    Attributes:
        whole: digits before the decimal mark, without marks between groups; may be empty.
        fraction: digits after it; None without a mark.
        negative: whether a minus sign stands before it.
        grouped: whether marks stand between its groups of digits.
    """

    whole: str
    fraction: str | None = None
    negative: bool = False
    grouped: bool = False

    @property
    def is_one(self) -> bool:
        return self.fraction is None and self.whole.lstrip("0") == "1"

    @property
    def is_whole(self) -> bool:
        return self.fraction is None

    @property
    def value(self) -> int:
        """The number without its fraction."""
        return int(self.whole or "0")


class Numerals:
    """The numerals of a language.

    Args:
        group: characters that may stand between groups of three digits.
        decimal: the decimal mark.
        dotted: whether a dot before one, two or more than three digits is a decimal mark, too.

    Attributes:
        pattern: source of a regular expression for a numeral, without groups of its own.
    """

    def __init__(self, group: str = ",", decimal: str = ".", dotted: bool = False) -> None:
        self._group, self._decimal, self._dotted = group, decimal, dotted
        # No numeral begins inside a run of digits: that keeps long runs linear.
        marks = f"[{re.escape(group)}]"
        dot = r"|\.(?:[0-9]{4,}|[0-9]{1,2})(?![0-9]|\.[0-9])" if dotted else ""
        self.pattern = (
            rf"(?:(?<![0-9])(?:[0-9]{{1,3}}(?:{marks}[0-9]{{3}})+(?![0-9])|[0-9]+)(?:{re.escape(decimal)}[0-9]+{dot})?"
            rf"|(?<![0-9A-Za-z{re.escape(decimal)}]){re.escape(decimal)}[0-9]+)"
        )

    def is_grouped(self, written: str) -> bool:
        """Whether dots stand between groups of digits: ``1.000.000``."""
        return "." in self._group and bool(_DOTS_OF_GROUPS.fullmatch(written))

    def parse(self, written: str) -> Numeral:
        """The numeral that :attr:`pattern` found, with a minus sign or without."""
        negative = written[:1] in "-−"
        whole, mark, fraction = written.lstrip("-−").partition(self._decimal)
        if self._dotted and not mark and (found := _DOTTED.fullmatch(whole)):
            whole, mark, fraction = found[1], ".", found[2]
        digits = whole
        for sign in self._group:
            digits = digits.replace(sign, "")
        return Numeral(digits, fraction if mark else None, negative, grouped=digits != whole)


def value_of_roman(roman: str) -> int:
    """The value of a Roman number of the letters I, V, X, L and C."""
    values = [_ROMAN[letter] for letter in roman]
    return sum(-value if value < max(values[place:]) else value for place, value in enumerate(values))
