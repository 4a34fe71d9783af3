"""English words for numbers, in the British form that upstream's number speller uses."""

from __future__ import annotations

_SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SCALES = ["", " thousand", " million", " billion", " trillion"]

MAX_CARDINAL_DIGITS = 15
"""Longer runs of digits are card or serial numbers: they are read digit by digit."""


def cardinal(number: int) -> str:
    """1999 -> ``one thousand, nine hundred and ninety-nine``; at most ``MAX_CARDINAL_DIGITS`` digits."""
    groups = _thousands(number)
    words = [_below_thousand(group) + scale for group, scale in zip(groups, _SCALES, strict=False) if group]
    if not words:
        return _SMALL[0]
    if len(words) > 1 and 0 < groups[0] < 100:
        return ", ".join(reversed(words[1:])) + " and " + words[0]
    return ", ".join(reversed(words))


def digits(text: str) -> str:
    """007 -> ``zero zero seven``."""
    return " ".join(_SMALL[int(digit)] for digit in text)


def integer(text: str) -> str:
    """A run of digits: as a cardinal, or digit by digit with a leading zero or when very long."""
    if len(text) > MAX_CARDINAL_DIGITS or (text.startswith("0") and len(text) > 1):
        return digits(text)
    return cardinal(int(text))


def decimal(text: str) -> str:
    """1,000.50 -> ``one thousand point five zero``; commas group, one dot at most."""
    whole, dot, fraction = text.replace(",", "").partition(".")
    words = [integer(whole)] if whole else []
    return " ".join(words + (["point", digits(fraction)] if dot else []))


def _thousands(number: int) -> list[int]:
    groups = []
    while number:
        number, group = divmod(number, 1000)
        groups.append(group)
    return groups


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_SMALL[hundreds]} hundred"] if hundreds else []
    if rest:
        words.append(_below_hundred(rest))
    return " and ".join(words)


def _below_hundred(number: int) -> str:
    if number < 20:
        return _SMALL[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_SMALL[ones]}" if ones else "")
