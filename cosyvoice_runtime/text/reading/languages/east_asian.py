"""Numbers of the languages that count by ten thousands: Japanese and Korean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cosyvoice_runtime.text.reading.languages.language import Currency, Language
from cosyvoice_runtime.text.reading.languages.numeral import Numeral

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


def amount(language: Language, numeral: Numeral, currency: Currency) -> str:
    """An amount of money: without a fraction of zeros, and with two digits of it as hundredths."""
    fraction = numeral.fraction
    if fraction is not None and not fraction.strip("0"):
        numeral = replace(numeral, fraction=None)
    elif fraction and len(fraction) == 2 and currency.cent:
        whole = language.counted(replace(numeral, fraction=None), currency)
        return language.space.join((whole, language.cardinal(str(int(fraction))), currency.cent))
    return language.counted(numeral, currency)
