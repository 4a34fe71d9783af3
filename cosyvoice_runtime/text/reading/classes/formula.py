"""Formulae: ``2x + 3 = 7``, ``6.02×10^23``, ``x >= 5``, ``√16``, ``2³``, ``5−3=2``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from cosyvoice_runtime.text.reading.classes import measure
from cosyvoice_runtime.text.reading.languages.exponents import power_of
from cosyvoice_runtime.text.reading.languages.language import Language, Unit, alternatives
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_PRODUCTS = ("×", "*", "x")

_AREA = re.compile(r"-?[0-9.,]+\s?(?:mm|cm|dm|m|km|in|ft)(?:[²³]|\^[23])|[0-9.,]+\s?×\s?[0-9.,]+[mgLWV]")
"""An amount of square or cubic units, or a size with its unit, which is no product."""
_SIZE = re.compile(r"[0-9.,]+(?:×[0-9.,]+){1,2}")
"""A size such as ``1920×1080``, which is a product only before an equals sign and in ``8×400 m``."""
_NO_SIZE = re.compile(r"\s?[=≈]|(?<=×[0-9]{3})\s?m(?![\w²³])")
_PRICES = re.compile(r"[$€£][0-9.,]{1,16}(?:\s/\s[$€£][0-9.,]{1,16}){1,6}")
"""Amounts with strokes between them, which are a list."""
_OF_ELECTRICITY = re.compile(r"[0-9]\s?k?Ω|[0-9]V.{0,12}[0-9][AW](?!\w)|[0-9][AW]\b.{0,12}[0-9]V(?!\w)")
"""Amounts of volts, amps and ohms, whose signs are no letters of a formula."""
_ACCELERATION = re.compile(r"-?[0-9.,]+\s?k?m/s(?:²|\^2)")


def read(place: Place) -> ReadForm | None:
    """Terms with signs between them, or one term that only a formula has."""
    language = place.language
    if not language.operations:
        return None
    whole, part = _patterns(language)
    if language.units and (found := place.match(_of_unit(language))):
        words = language.of_many(
            _joined([*part.finditer(found["number"])], language), _named(found["unit"], language)
        )
        return ReadForm(found.end(), _per(words, found["per"], language))
    found = place.match(whole)
    if (
        not found
        or _AREA.fullmatch(found[0])
        or (_SIZE.fullmatch(found[0]) and not _NO_SIZE.match(place.text, found.end()))
        or _is_acceleration(found[0], language)
        or ("Ω" in language.units and _OF_ELECTRICITY.search(found[0]))
        or not _is_formula(found[0])
    ):
        return None
    parts = [*part.finditer(found[0])]
    last = place.start + parts[-1].start()
    if len(parts) > 1 and parts[-1].lastgroup == "number" and parts[-2][0].strip() not in _PRODUCTS:
        term = Place(place.text, last, language)
        if (own := language.own(term)) and own.end > found.end():  # Letters follow: ``b² − 4ac``.
            return ReadForm(last, _joined(parts[:-1], language) + language.space)
        measured = measure.read(term)
        if measured is not None:  # The number and its unit are read by that class.
            return ReadForm(last, _joined(parts[:-1], language) + language.space)
        bare = _bare_unit(language).match(place.text, found.end()) if parts[-2][0].strip() == "=" else None
        if bare:  # Letters that are words elsewhere are units here: ``F = 6 N``.
            counted = language.counted(language.numerals.parse(parts[-1][0]), _named(bare[1], language))
            return ReadForm(bare.end(), f"{_joined(parts[:-1], language)}{language.space}{counted}")
    words = _joined(parts, language)
    unit = _unit(language).match(place.text, found.end()) if language.units else None
    if not unit:
        return ReadForm(found.end(), words)
    words = language.of_many(words, _named(unit[1], language))
    return ReadForm(unit.end(), _per(words, unit[2], language))


def _named(sign: str, language: Language) -> Unit:
    return language.formula_units.get(sign) or language.units[sign]


def _per(words: str, unit: str | None, language: Language) -> str:
    return language.per(words, language.per_units[unit]) if unit else words


def _is_acceleration(written: str, language: Language) -> bool:
    return "s²" in language.per_units and bool(_ACCELERATION.fullmatch(written))


def _joined(parts: Sequence[re.Match[str]], language: Language) -> str:
    words: list[str] = []
    for each in parts:
        words += _words(each, language, after=words)
    return language.space.join(words)


@cache
def _unit(language: Language) -> re.Pattern[str]:
    """A unit after a product, as in ``2 * 10 μm``."""
    unit, per = _sources_of_units(language)
    return re.compile(rf"\s({unit})(?:/({per}))?(?![\w/²³^·]|\s[-+−×·]\s(?!\())")


@cache
def _of_unit(language: Language) -> re.Pattern[str]:
    """A power of ten with its unit, as in ``3×10^8m/s``."""
    unit, per = _sources_of_units(language)
    return re.compile(
        rf"(?a)(?<![\w.,])(?P<number>{language.numerals.pattern}\s?[×x*]\s?10(?:\^[-−]?[0-9]{{1,3}}|[⁰¹²³⁴-⁹⁻]{{1,4}}))"
        rf"(?P<unit>{unit})(?:/(?P<per>{per}))?(?![\w/²³^])"
    )


def _sources_of_units(language: Language) -> tuple[str, str]:
    spaced = [
        sign
        for sign in language.units
        if sign not in language.glued_units and (sign.isalpha() or ("·" in sign and sign[0].isalpha()))
    ]
    spaced += [*language.formula_units]
    return alternatives(spaced), alternatives(language.per_units) if language.per_units else "(?!)"


@cache
def _bare_unit(language: Language) -> re.Pattern[str]:
    """A unit of one letter after a number that something equals."""
    units = alternatives(language.formula_units) if language.formula_units else "(?!)"
    return re.compile(rf"\s({units})(?![\w/²³^-]|\s[-+−×·]\s)")


def _is_formula(written: str) -> bool:
    """Whether it is no word, number, range or code that has signs in it."""
    if re.search(r"[=≈≠≤≥<>√×÷^⁰¹²³⁴-⁹±∑π]|\*\s?[0-9]", written):
        return bool(re.search(r"[0-9⁰¹²³⁴-⁹]|√|π|[A-Za-z]\s?[=<>≤≥≈]", written)) and not re.fullmatch(
            r"[A-Za-z]+", written
        )
    if _PRICES.fullmatch(written):
        return False
    if re.search(r"\s[+/]\s|[0-9]\+[0-9]|[0-9][nxyz] [-−] [0-9]", written):
        return bool(re.search("[0-9]", written))
    return False


def _words(each: re.Match[str], language: Language, after: list[str]) -> list[str]:
    kind, written = each.lastgroup, each[0].strip()
    if kind == "fraction":
        above, below = map(int, written.split("/"))
        quotient = re.match(r"\s?[=≈]", each.string[each.end() :])
        if above < below or (above % below and below < 10 and not quotient):
            return [language.fraction(above, below)]
        return [language.cardinal(str(above)), language.operations["/"], language.cardinal(str(below))]
    if kind == "number":
        return [language.number(language.numerals.parse(written))]
    if kind == "money":
        return [language.money(language.numerals.parse(written[1:]), language.currencies[written[0]])]
    if kind == "times":
        return [language.operations["×"]]
    if kind == "call":
        return [*written] if written.isalpha() else [written]
    if kind == "letters":
        return [language.letters.get(written, written)]
    if kind == "power":
        return [power_of(written, language)]
    if kind == "root":
        return [language.root]
    if written in ("-", "−", "–") and not after:
        return [language.minus]
    return [language.operations["×" if written in "·⋅" else written]]


@cache
def _patterns(language: Language) -> tuple[re.Pattern[str], re.Pattern[str]]:
    number = language.numerals.pattern
    several = r"[-−]?[0-9A-Za-zα-ω]{1,4}(?: ?[-+−·/] ?[0-9A-Za-zα-ω]{1,3})?"
    power = rf"⁻?[⁰¹²³⁴-⁹]+|\^\{{{several}\}}|\^[-−]?(?:[0-9]{{1,4}}|[A-Za-z]{{1,4}})|\^\({several}\)"
    letters = r"(?:(?<![A-Za-z'’])[A-Za-z](?![A-Za-z'’.])|(?<![Α-ω])[α-ωΔΩΣΦ](?![Α-ω]))"
    call = r"(?:(?<![A-Za-z])[A-Za-z]\([A-Za-z]\)|(?<=[=\s])mc(?=²|\^2))"
    sign = r"[-+−–=×÷*·⋅<>≈≠≤≥±/x]"
    atom = rf"(?:[$€£]{number}(?![kKMBT]\b|[bm]n\b)|{number}(?![0-9])|{call}|{letters})"
    factors = rf"(?:(?<=[0-9A-Za-zπθ⁰¹²³⁴-⁹]){letters}(?:{power})?){{0,2}}"
    term = rf"(?:[-−±√]\s?)?(?:√\s?)?{atom}(?:{power})?{factors}"
    whole = re.compile(
        rf"(?a)(?<![\w.,$€£/-])(?<!\)){term}(?:\s?(?:>=|<=|!=|==|[-+−–=×÷*·⋅<>≈≠≤≥/±]|x(?=\s?10\^))\s?{term}){{0,12}}"
        r"(?![\w%°$€£⁰¹²³⁴-⁹⁻⁄Α-ω]|!\s?[≈=/×·)]|!\s[0-9]!|[-/.,:][0-9])"
    )
    part = re.compile(
        rf"(?P<power>{power})|(?<![\w.,/^])(?P<fraction>[1-9][0-9]?/[1-9][0-9]{{0,2}})(?![0-9_.,/])|(?P<money>[$€£]{number})|(?P<number>{number})|(?P<times>x(?=\s?10\^))"
        rf"|(?P<call>{call})|(?P<letters>[A-Za-zα-ωΔΩΣΦ])|(?P<root>√)|(?P<sign>>=|<=|!=|==|{sign})"
    )
    return whole, part
