"""Numbers alone: ranges, versions, years, ordinals, decimals, whole numbers and signs before them."""

from __future__ import annotations

import re
from functools import cache

from cosyvoice_runtime.text.reading.classes.money import RANGE
from cosyvoice_runtime.text.reading.languages.language import Language, alternatives
from cosyvoice_runtime.text.reading.languages.numeral import CIRCLED
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm, first

_DOTTED = re.compile(r"(?<![0-9.])[0-9]+(?:\.[0-9]+){2,}(?![0-9])")
_YEAR = r"(?:1[1-9]|20)[0-9]{2}"
_YEARS = re.compile(rf"(?a)(?<![\w.,/])({_YEAR}){RANGE}({_YEAR}|[0-9]{{2}})(?![\w/-]|[.,][0-9])")
_EARLY_YEARS = re.compile(rf"(?a)(?<![\w.,/])(10[0-9]{{2}}){RANGE}(1[01][0-9]{{2}}|[0-9]{{2}})(?=[),;])")
_SEASON = re.compile(r"(?a)(?<![\w.,/])((?:19|20)[0-9]{2})/([0-9]{2})(?![0-9/])")
_TWO_YEARS = re.compile(r"(?a)(?<![\w.,/])((?:19|20)[0-9]{2}),((?:19|20)[0-9]{2})(?![\w]|[.,:/][0-9])")
_SCIENTIFIC = re.compile(r"(?a)(?<![\w.,])([0-9]+(?:\.[0-9]+)?)[eE]([-+]?[0-9]{1,3})(?![\w]|[.,][0-9])")
_ONE_YEAR = re.compile(rf"(?a)(?<![\w.,/])({_YEAR})(?![\w/]|[.,:][0-9]|,[0-9]{{3}})")
_EARLY_YEAR = re.compile(r"(?a)(?<![\w.,/])((?:1[0-9]|2[01])[0-9]{2})(?![\w/]|[.,:][0-9]|,[0-9]{3})")
_IN_BRACKETS = re.compile(r"(?<=\()10[0-9]{2}(?=\))")
_BY_WORD = re.compile(r"(?a)(?<![\w.,/])([1-9][0-9]{2,3})(?![\w/]|[.,:][0-9])")
_SIGNS = re.compile(r"(?a)(?<![\w)\]])(?:[-−+~]|(?:[<>]=|[#≈≤≥±<>№])\s?)(?=[$€£¥]?\.?[0-9])")


def read(place: Place) -> ReadForm | None:
    """A number in the form that its digits and neighbours show."""
    return first((_circled, _dotted, _scientific, _years, _ordinal, _range, _year, _signed, _number), place)


def _circled(place: Place) -> ReadForm | None:
    sign = place.text[place.start]
    if sign not in CIRCLED:
        return None
    return ReadForm(place.start + 1, place.language.cardinal(str(CIRCLED.index(sign) + 1)))


def _dotted(place: Place) -> ReadForm | None:
    language = place.language
    found = place.match(_DOTTED)
    if not found or language.numerals.is_grouped(found[0]):
        return None
    parts = map(language.cardinal, found[0].split("."))
    dot = language.dot or language.point
    return ReadForm(found.end(), f"{language.space}{dot}{language.space}".join(parts))


def _years(place: Place) -> ReadForm | None:
    language = place.language
    early = place.before.endswith("(") or place.word_before in language.before_year
    if found := place.match(_YEARS) or (place.match(_EARLY_YEARS) if early else None):
        low, high = int(found[1]), found[2]
        if len(high) == 4 and int(high) > low - 1:
            return ReadForm(found.end(), language.ranged(language.year(low), language.year(int(high))))
        if len(high) == 2 and int(high) > low % 100 and re.search("[-–—]", found[0]):
            return ReadForm(found.end(), language.ranged(language.year(low), language.cardinal(high)))
    if found := place.match(_TWO_YEARS):
        return ReadForm(
            found.end(),
            f"{language.year(int(found[1]))}{language.pause}{language.space}{language.year(int(found[2]))}",
        )
    if found := place.match(_SEASON):
        return ReadForm(
            found.end(), language.ranged(language.year(int(found[1])), language.cardinal(found[2]))
        )
    return None


def _scientific(place: Place) -> ReadForm | None:
    language = place.language
    found = place.match(_SCIENTIFIC)
    if not found or not language.operations:
        return None
    times = (
        language.number(language.numerals.parse(found[1])),
        language.operations["×"],
        language.cardinal("10"),
    )
    words = language.space.join((*times, language.power(found[2].lstrip("+"), plain=True)))
    unit = _unit(language).match(place.text, found.end()) if language.units else None
    if unit:
        return ReadForm(unit.end(), language.of_many(words, language.units[unit[1]]))
    return ReadForm(found.end(), words)


@cache
def _unit(language: Language) -> re.Pattern[str]:
    spaced = (sign for sign in language.units if sign not in language.glued_units)
    return re.compile(rf"\s({alternatives(spaced)})(?![\w²³^/])")


def _ordinal(place: Place) -> ReadForm | None:
    return place.language.ordinals(place)


def _range(place: Place) -> ReadForm | None:
    language = place.language
    found = place.match(_ranges(language))
    if not found:
        return None
    low, high = (language.numerals.parse(found[name]) for name in ("low", "high"))
    minus = f"{language.minus}{language.space}" if found["minus"] else ""
    if not language.falling_ranges and low.is_whole and high.is_whole and high.value < low.value:
        return ReadForm(found.end(), f"{minus}{language.number(low)} - {language.number(high)}")
    return ReadForm(found.end(), minus + language.ranged(language.number(low), language.number(high)))


@cache
def _ranges(language: Language) -> re.Pattern[str]:
    number = language.numerals.pattern
    return re.compile(
        rf"(?a)(?:(?<![\w)\]])(?<![0-9]\s)(?P<minus>[-−]))?(?<![\w])(?<![\w][.,])(?<![.,])(?P<low>{number})"
        rf"(?:[-–—‑~～〜]|\s[-–—~～〜]\s)(?P<high>{number})(?:(?=x(?![\w]))|(?![\w-]|[.,][0-9]))"
    )


def _year(place: Place) -> ReadForm | None:
    language = place.language
    early = place.word_before in language.before_year or place.match(_IN_BRACKETS)
    found = place.match(_EARLY_YEAR if early else _ONE_YEAR)
    if found and not language.counts(place, found.end()):
        plus = _PLUS.match(place.text, found.end())
        words = language.year(int(found[1]))
        return ReadForm(plus.end(), f"{words} {language.plus}") if plus else ReadForm(found.end(), words)
    found = place.match(_BY_WORD)
    if found and place.word_before in language.before_pairs:
        return ReadForm(found.end(), language.pairs(found[1]))
    return None


def _signed(place: Place) -> ReadForm | None:
    found = place.match(_SIGNS)
    if not found:
        return None
    sign = found[0].strip()
    words = place.language.signs_before.get(sign)
    return None if words is None else ReadForm(found.end(), words + place.language.space)


def _number(place: Place) -> ReadForm | None:
    language = place.language
    found = place.match(_plain(language))
    if not found:
        return None
    numeral = language.numerals.parse(found[0])
    end = found.end()
    plus = _PLUS.match(place.text, end)
    words = language.number_before(numeral, place, end)
    if plus:
        return ReadForm(plus.end(), f"{words}{language.space}{language.plus}")
    return ReadForm(end, words)


_PLUS = re.compile(r"(?a)\+(?![\w+])")


@cache
def _plain(language: Language) -> re.Pattern[str]:
    return re.compile(language.numerals.pattern + r"|[0-9]+")
