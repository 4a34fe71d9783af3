"""Amounts of money: ``$5``, ``$5-10``, ``USD 5 million``, ``20 €``, ``$5/month``."""

from __future__ import annotations

import re
from functools import cache

from cosyvoice_runtime.text.reading.languages.language import Currency, Language, alternatives
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

MORE = re.compile(r"\+(?![\w+=])")
"""A plus after an amount, which says that it is the least."""
RANGE = r"\s?[-–—‑−~～〜]\s?"
"""This stands between the two ends of a range."""


def read(place: Place) -> ReadForm | None:
    """An amount, or a range of amounts, with what it is for."""
    for pattern in _patterns(place.language):
        found = place.match(pattern)
        if found:
            words, plus = _words(found, place), MORE.match(place.text, found.end())
            if plus:
                return ReadForm(plus.end(), f"{words}{place.language.space}{place.language.plus}")
            return ReadForm(found.end(), words)
    return None


@cache
def _patterns(language: Language) -> tuple[re.Pattern[str], ...]:
    signs = [sign for sign in language.currencies if not sign.isalnum()]
    codes = [code for code in language.currencies if code.isalnum()]
    number = language.numerals.pattern
    scale = (
        rf"(?:\s?(?P<scale>{alternatives(language.scales)})(?![\wÀ-ÖØ-öø-ӿ]))?"
        if language.scales
        else "(?P<scale>(?!))?"
    )
    per = (
        rf"(?:\s?/\s?(?P<per>{alternatives(language.per_units)})(?![\wÀ-ÖØ-öø-ӿ])(?:(?<=[a-z]{{2}})\.(?=\s[a-z(×=]|[,;)]))?)?"
        if language.per_units
        else "(?P<per>(?!))?"
    )
    minus = r"(?:(?<![\w)\]])(?<![0-9]\s)(?P<minus>[-−])\s?)?"
    sign, code = alternatives(signs), alternatives(codes)
    # Words of currencies, which are longer than codes, only follow a number.
    first = alternatives(code for code in codes if len(code) <= 3)
    before = rf"(?:(?P<sign>{sign})|(?<!\w)(?P<code>{first})(?![A-Za-zÀ-ÖØ-öø-ӿ]))"
    ends = language.decimal_mark == ","
    after = alternatives([sign for sign in signs if ends or sign[-1] != "$"])
    again = rf"(?:{sign}|{code})?\s?(?:{sign})?"
    return (
        re.compile(
            rf"(?a){minus}{before}\s?{minus.replace('minus', 'inner')}(?P<low>{number})"
            rf"(?:{RANGE}{again}(?P<high>{number})(?![0-9]|/(?![a-z])|-[0-9]))?{scale}{per}"
        ),
        re.compile(
            rf"(?a){minus}(?P<low>{number})(?:{RANGE}(?P<high>{number}))?{scale}\s?"
            rf"(?:(?P<sign>{after})(?![0-9])|(?P<code>{code})(?![\wÀ-ÖØ-öø-ӿ]|/[A-Z]{{3}}(?!\w))){per}"
            rf"(?P<inner>(?!))?"
        ),
    )


def _words(found: re.Match[str], place: Place) -> str:
    language = place.language
    currency = language.currency(found["sign"] or found["code"], place)
    if language.qualifies(place, found.end()):
        currency = language.quality(currency)
    low, high = (language.numerals.parse(found[name]) if found[name] else None for name in ("low", "high"))
    assert low is not None
    scale = language.scales[found["scale"]] if found["scale"] else ""
    words = amount(low, high, scale, currency, language)
    if found["minus"] or found["inner"]:
        words = f"{language.minus}{language.space}{words}"
    if found["per"]:
        words = language.per(words, language.per_units[found["per"]])
    return words


def amount(low: Numeral, high: Numeral | None, scale: str, currency: Currency, language: Language) -> str:
    """An amount in words, with cents where there are some."""
    if scale or high is not None:
        return language.of_scale(low, high, scale, currency)
    return language.money(low, currency)
