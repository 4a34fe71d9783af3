"""Amounts of a unit: ``5-10 km``, ``50%``, ``20°C``, ``10 MB/s``, ``120/80 mmHg``, ``5'10"``."""

from __future__ import annotations

import re
from functools import cache

from cosyvoice_runtime.text.reading.classes.money import MORE, RANGE
from cosyvoice_runtime.text.reading.languages.language import Currency, Language, alternatives
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_FEET = re.compile(r"(?a)(?<![\w.,])([0-9]{1,2})['’′][\s-]?([0-9]{1,2})(?:[\"”″]|''|’’)")
_PRESSURE = re.compile(r"(?a)(?<![\w.,/])([0-9]{2,3})/([0-9]{2,3})(?=\s?mm\s?Hg)")


def read(place: Place) -> ReadForm | None:
    """An amount of a unit, or a range of amounts."""
    language = place.language
    if not language.units:
        return None
    if found := place.match(_FEET):
        return ReadForm(found.end(), language.feet(int(found[1]), int(found[2])))
    if found := place.match(_PRESSURE):
        words = language.over(language.pressure(found[1]), language.pressure(found[2]))
        rest = Place(place.text, found.end(), language).match(_AFTER_PRESSURE)
        return ReadForm(rest.end() if rest else found.end(), words)
    if place.before[-1:] in language.scales and (found := place.match(_after_scale(language))):
        words = language.units[found[1]].many
        return ReadForm(found.end(), language.per(words, language.per_units[found[2]]) if found[2] else words)
    found = place.match(_pattern(language))
    if not found:
        return None
    parts = found.groupdict()
    if parts["minus"] and place.before.endswith(" "):
        term = Place(place.text, found.start("low"), language)
        if (own := language.own(term)) and own.end >= found.end():  # Letters of a formula: ``b² - 4ac``.
            return ReadForm(term.start, language.minus + language.space)
    unit = language.units[parts["unit"] or parts["glued"] or parts["joined"]]
    if parts["joined"] or language.qualifies(place, found.end()):
        unit = unit._replace(many=unit.one)
    low = language.numerals.parse(f"{'-' if parts['minus'] else ''}{parts['low']}")
    if parts["high"] and parts["first"]:
        high = language.numerals.parse(parts["high"])
        words = language.ranged(
            language.counted(low, language.units[parts["first"]]), language.counted(high, unit)
        )
    elif parts["scale"]:
        last = language.numerals.parse(parts["high"]) if parts["high"] else None
        counted = Currency(unit.one, unit.many, gender=unit.gender, few=unit.few)
        words = language.of_scale(low, last, language.scales[parts["scale"]], counted)
    elif parts["high"]:
        words = language.range_of(low, language.numerals.parse(parts["high"]), unit)
    else:
        words = language.counted(low, unit)
    if parts["by"]:
        sign = parts["unit"] or parts["glued"]
        times = _PRODUCT.match(place.text, found.end()) or ("×" in parts["by"] and sign in _NO_LENGTHS)
        joint = language.operations["×"] if times else language.by
        words = f"{words}{language.space}{joint}"
    for per in filter(None, (parts["per"], parts["then"])):
        words = language.per(words, language.per_units[per])
    if more := MORE.match(place.text, found.end()):
        return ReadForm(more.end(), f"{words}{language.space}{language.plus}")
    return ReadForm(found.end(), words)


_NO_LENGTHS = (
    "kg",
    "g",
    "mol",
    "V",
    "A",
    "W",
    "kW",
    "N",
    "J",
    "kJ",
    "h",
    "hr",
    "hrs",
    "s",
    "min",
    "L",
    "mL",
    "K",
)
"""Units of which a sign of multiplication makes a product, no size."""
_PRODUCT = re.compile(r"[0-9.,]+\s?[A-Za-zµΩ°/²³·%]{0,8}\s?=(?!\s?[0-9.,]+\s?(?:[a-z]{0,2}m|ft|in|yd)[²³^])")
"""The second of two amounts whose product is told."""


@cache
def _after_scale(language: Language) -> re.Pattern[str]:
    """A unit after a number whose last character is a scale: ``1億5,000万km``."""
    units, per = alternatives(language.units), alternatives(language.per_units)
    return re.compile(rf"({units})(?:/({per}))?(?![\w²³^])", re.ASCII)


_AFTER_PRESSURE = re.compile(r"\s?mm\s?Hg(?![A-Za-z])")


@cache
def _pattern(language: Language) -> re.Pattern[str]:
    number = language.numerals.pattern
    glued = [sign for sign in language.units if sign in language.glued_units]
    spaced = [sign for sign in language.units if sign not in language.glued_units]
    each = rf"{alternatives(language.per_units)})(?![\wÀ-ÖØ-öø-ӿ])"
    per = rf"(?:\s?/\s?(?P<per>{each}(?:/(?P<then>{each})?"
    per += r"(?:(?<=/mo|/yr|/hr|/wk|/ft|/lb)\.(?=\s[a-z]|[,;)]))?)?"
    scales = [word for word in language.scales if len(word) > 2]
    scale = rf"(?:\s(?P<scale>{alternatives(scales)})(?![\wÀ-ÖØ-öø-ӿ]))?" if scales else "(?P<scale>(?!))?"
    end = r"(?:(?<=%)|(?![\wÀ-ÖØ-öø-ӿ²³^]|-[0-9]))"
    joined = (
        rf"-(?P<joined>{alternatives(language.hyphen_units)})(?![\w²³^]|-(?!long|high|wide|tall|thick|deep|old))"
        if language.hyphen_units
        else r"(?P<joined>(?!))"
    )
    return re.compile(
        rf"(?a)(?:(?<![\w)\].,])(?<![0-9]\s)(?P<minus>[-−])\s?)?(?:(?<![A-Za-z0-9])|(?<=[0-9][x×])|(?<=sin)|(?<=cos)|(?<=tan))(?<![0-9][.,])(?P<low>{number})"
        rf"(?:(?:(?P<first>{alternatives(spaced)}))?{RANGE}(?P<high>{number}))?{scale}"
        rf"(?:\s?(?P<unit>{alternatives(spaced)}){end}|(?P<glued>{alternatives(glued)}){end}|{joined})"
        rf"{per}(?:(?P<by>\s?[x×]\s?(?=[0-9])(?![0-9]{{1,3}} (?:day|week|month)s?\b)))?"
    )
