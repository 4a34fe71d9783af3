"""Numbers of the languages that count by ten thousands: Japanese and Korean."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 20
"""Digits of the longest number; longer runs are read digit by digit."""


def groups_of_four(digits: str) -> list[int]:
    """The values of the groups of four digits, from the right."""
    return [int(digits[max(0, end - 4) : end]) for end in range(len(digits), 0, -4)]


def below_ten_thousand(number: int, digits: str, tens: Sequence[str], one_thousand: str) -> str:
    """A group in words.

    Args:
        number: 1 to 9999.
        digits: the ten digits, zero first.
        tens: words for ten, hundred and thousand.
        one_thousand: the word for one thousand.
    """
    words = ""
    for place in (3, 2, 1, 0):
        digit = number // 10**place % 10
        if digit == 1 and place == 3:
            words += one_thousand
        elif digit:
            words += ("" if digit == 1 and place else digits[digit]) + (tens[place - 1] if place else "")
    return words
