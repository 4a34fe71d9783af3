"""Formulae: ``2x + 3 = 7``, ``6.02×10^23``, ``x >= 5``, ``√16``, ``2³``, ``5−3=2``."""

from __future__ import annotations

import re
from functools import cache

from cosyvoice_runtime.text.reading.languages.language import Language, alternatives
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")

_AREA = re.compile(r"-?[0-9.,]+\s?(?:mm|cm|dm|m|km|in|ft)(?:[²³]|\^[23])|[0-9.,]+\s?×\s?[0-9.,]+[mgLWV]")
"""An amount of square or cubic units, or a size with its unit, which is no product."""


def read(place: Place) -> ReadForm | None:
    """Terms with signs between them, or one term that only a formula has."""
    language = place.language
    if not language.operations:
        return None
    whole, part = _patterns(language)
    found = place.match(whole)
    if not found or _AREA.fullmatch(found[0]) or not _is_formula(found[0]):
        return None
    words: list[str] = []
    for each in part.finditer(found[0]):
        words += _words(each, language, after=words)
    unit = _unit(language).match(place.text, found.end()) if language.units and words else None
    if unit:
        return ReadForm(unit.end(), language.of_many(language.space.join(words), language.units[unit[1]]))
    return ReadForm(found.end(), language.space.join(words))


@cache
def _unit(language: Language) -> re.Pattern[str]:
    """A unit after a product, as in ``2 * 10 μm``."""
    spaced = [sign for sign in language.units if sign not in language.glued_units and sign.isalpha()]
    return re.compile(rf"\s({alternatives(spaced)})(?![\w])")


def _is_formula(written: str) -> bool:
    """Whether it is no word, number, range or code that has signs in it."""
    if re.search(r"[=≈≠≤≥<>√×÷^⁰¹²³⁴-⁹±∑π]|\*\s?[0-9]", written):
        return bool(re.search(r"[0-9⁰¹²³⁴-⁹]|√|π|[A-Za-z]\s?[=<>≤≥≈]", written)) and not re.fullmatch(
            r"[A-Za-z]+", written
        )
    if re.search(r"\s[+/]\s|[0-9]\+[0-9]", written):
        return bool(re.search("[0-9]", written))
    return False


def _words(each: re.Match[str], language: Language, after: list[str]) -> list[str]:
    kind, written = each.lastgroup, each[0].strip()
    if kind == "number":
        return [language.number(language.numerals.parse(written))]
    if kind == "money":
        return [language.money(language.numerals.parse(written[1:]), language.currencies[written[0]])]
    if kind == "times":
        return [language.operations["×"]]
    if kind in ("letters", "call"):
        return [language.letters.get(written, written)]
    if kind == "power":
        exponent = written.translate(_POWERS).strip("^{}()")
        return [language.power(exponent)]
    if kind == "root":
        return [language.root]
    if written in ("-", "−", "–") and not after:
        return [language.minus]
    return [language.operations[written]]


@cache
def _patterns(language: Language) -> tuple[re.Pattern[str], re.Pattern[str]]:
    number = language.numerals.pattern
    power = r"[⁰¹²³⁴-⁹⁻]+|\^\{?-?[0-9A-Za-z]{1,4}\}?|\^\(-?[0-9]{1,4}\)"
    letters = r"(?<![A-Za-z])[A-Za-zα-ωΔΩΣΦ](?![A-Za-z'’.])"
    call = r"(?<![A-Za-z])[A-Za-z]\([A-Za-z]\)"
    sign = r"[-+−–=×÷*<>≈≠≤≥±/x]"
    atom = rf"(?:[$€£]{number}|{number}(?![0-9])|{call}|{letters})"
    factors = rf"(?:(?<=[0-9A-Za-zπθ²³]){letters}(?:{power})?){{0,2}}"
    term = rf"(?:[-−±√]\s?)?(?:√\s?)?{atom}(?:{power})?{factors}"
    whole = re.compile(
        rf"(?a)(?<![\w.,$€£/-])(?<!\)){term}(?:\s?(?:>=|<=|!=|==|[-+−–=×÷*<>≈≠≤≥/±]|x(?=\s?10\^))\s?{term}){{0,12}}"
        r"(?![\w%°$€£]|[-/.,][0-9])"
    )
    part = re.compile(
        rf"(?P<power>{power})|(?P<money>[$€£]{number})|(?P<number>{number})|(?P<times>x(?=\s?10\^))"
        rf"|(?P<call>{call})|(?P<letters>[A-Za-zα-ωΔΩΣΦ])|(?P<root>√)|(?P<sign>>=|<=|!=|==|{sign})"
    )
    return whole, part
