"""Fractions and marks out of a total: ``1/2``, ``2 1/2``, ``4.8/5``, ``10/10``, ``24/7``."""

from __future__ import annotations

import re
from functools import cache

from cosyvoice_runtime.text.reading.languages.language import Language, alternatives
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_FIXED = {"24/7": "24 7", "9/11": "9 11", "50/50": "50 50"}
_RATING = re.compile(
    r"(?a)(?<![\w./,-])([0-9]{1,2}[.,][0-9]{1,2}|[0-9]{1,3})\s?/\s?(5|10|100)(?:\.0)?(?![\w/]|[.,][0-9]|\s?[-+*×÷=]\s?[0-9])"
)
_FRACTION = re.compile(
    r"(?a)(?<![\w./,])(?:([0-9]{1,4})[\s-])?([0-9]{1,4})[/⁄]([0-9]{1,4})(?:ths?|TH|rds?|nds?)?(?![\w/]|[.,][0-9])"
)
_BETWEEN = re.compile(r"\s?[-–]\s?(?=[1-9][0-9]{0,2}(?![0-9/.,-])| ?[1-9] [1-9]/[0-9])")
"""A dash between a fraction and the number up to which it leads: ``2 1/2–3 cups``."""
_UP_TO = re.compile(r"(?a)(?<![\w.,/–-])([0-9]{1,3})\s?[-–]\s?(?=([0-9]{1,3}) [1-9]/[2-9](?![\w/]))")
_LIST = re.compile(r"(?a)(?<![\w./,])[0-9]{1,4}(?:/[0-9]{1,4}){2,}(?![\w/]|[.,][0-9])")


def read(place: Place) -> ReadForm | None:
    """A fraction, a mark out of a total, or numbers with strokes between them."""
    language = place.language
    if found := place.match(_LIST):
        return ReadForm(
            found.end(), (language.space or language.pause).join(map(language.cardinal, found[0].split("/")))
        )
    if language.space and (found := place.match(_UP_TO)) and int(found[1]) <= int(found[2]):
        return ReadForm(found.end(), language.ranged(language.cardinal(found[1]), ""))
    found = place.match(_RATING)
    if found and ("," not in found[1] or language.decimal_mark == ","):
        got, most = language.numerals.parse(found[1].replace(".", language.decimal_mark)), int(found[2])
        if not got.is_whole or (most != 5 and 1 < got.value < most) or got.value == most or _is_rated(place):
            return ReadForm(found.end(), language.out_of(language.number(got), language.cardinal(found[2])))
    found = place.match(_FRACTION)
    if not found:
        return None
    written = found[0]
    if written in _FIXED:
        return ReadForm(
            found.end(),
            (language.space or language.pause).join(map(language.cardinal, _FIXED[written].split())),
        )
    whole, above, below = found[1], int(found[2]), int(found[3])
    if 1900 <= above < 2100 and len(found[3]) == 2 and not whole:
        return None
    if not below or (whole is None and above > 31 and above > below):
        return ReadForm(
            found.end(), (language.space or language.pause).join(map(language.cardinal, (found[2], found[3])))
        )
    fraction = language.fraction(above, below)
    if whole:
        fraction = language.mixed(language.cardinal(whole), fraction)
    if (between := _BETWEEN.match(place.text, found.end())) and language.space and (whole or above < below):
        return ReadForm(between.end(), f"{fraction}{language.space}{language.to}{language.space}")
    unit = _unit(language).match(place.text, found.end()) if language.units else None
    if unit:
        return ReadForm(unit.end(), language.fraction_of(fraction, language.units[unit[1]], bool(whole)))
    return ReadForm(found.end(), fraction)


@cache
def _unit(language: Language) -> re.Pattern[str]:
    glued = set(language.glued_units) - language.time_units.keys()
    spaced = (sign for sign in language.units if sign not in glued)
    return re.compile(rf"\s?({alternatives(spaced)})(?![\w²³^/]|-[0-9])(?:\.(?=\s[a-z]))?")


def _is_rated(place: Place) -> bool:
    return place.word_before in place.language.before_rating
