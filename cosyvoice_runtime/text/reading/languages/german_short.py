"""German: halves, versions, months and points of the compass in short, signs and Greek letters."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import german_nouns
from cosyvoice_runtime.text.reading.languages import german_tables as tables
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.european import European

_HALF = re.compile(
    r"(?<![\w.,/-])(?<![0-9] )1[/⁄]2 (?:[a-zäöüß]{2,12}e[rs]? )?([A-ZÄÖÜ]?[a-zäöüß]+|[A-Z]{2})\b\.?"
)
_HALF_HOUR = re.compile(
    r"(?<![\w.,/-])(?<![0-9] )([13]/4|1/2) ([1-9]|1[0-2])(?: Uhr)?(?!\w|[.,:/][0-9]| ?[%°€]| [A-ZÄÖÜ])"
)
_BEFORE_HOUR = re.compile(r"\b(?i:um|gegen|bis|ab|vor|nach|kurz vor|es ist) \Z")
_PARTS_OF_HOUR = {"1/2": "halb", "1/4": "viertel", "3/4": "dreiviertel"}
_MONTH = "(Jan|Feb|Mär|Mrz|Apr|Jun|Jul|Aug|Sept?|Okt|Nov|Dez)"
_MONTHS = re.compile(rf"(?<!\w){_MONTH}\.?\s?[-–]\s?{_MONTH}(?:\.|(?!\w))")
_ONE_MONTH = re.compile(rf"(?<!\w){_MONTH}\.")
_BEFORE_MONTH = re.compile(r"\b(?i:im|anfang|mitte|ende|seit|ab|bis|von|vom|zum) \Z")
_DOTTED = re.compile(
    r"(?<![\w.,])([0-9]{1,3})\.([0-9]{1,2})(?![\w%°€$/]|[.,:][0-9]|\s?[%°€$])(?: ([^\W\d_]+\.?))?"
)
_NAME = re.compile(r"\b([A-ZÄÖÜ][\w+#]*(?:[.-]\w+)?)[ *`]{1,4}\Z")
_AMOUNTS = re.compile(
    r"(?i)note|schnitt|wert|faktor|preis|kurs|index|punktzahl|summe|betrag|dose|wind|uhr|am|vom|zum|pi"
)
_MODEL = re.compile(r"(?<![\w.])([A-Z]{1,4})\.([0-9]{1,2})(?!\w|[.,][0-9])")
_COMPASS = {"N": "Nord", "S": "Süd", "O": "Ost", "W": "West"}
_DIRECTION = re.compile(r"(?<![\w.-])([NS]?[NSOW]{1,2})(?![\w-]|\.\w)")
_BEFORE_DIRECTION = re.compile(
    r"\b(?i:\w*wind|\w*winde|böen|brise|richtung|sturm)(?: (?:weht|dreht|kommt|wehen))?:?"
    r"(?: (?:aus|nach|auf|von|um))? \Z"
    r"|\b(?:aus|von|nach) [NSOW]{1,3} (?:nach|auf|bis|und) \Z"
)
_PERCENT = re.compile(r"(?<![\w.,])([0-9]{1,3}(?:,[0-9]{1,2})?)\s?%-?(ig(?:e[nrsm]?)?)\b")
_SENTENCE_OF_LAW = re.compile(r"S\. ?(?=[0-9])")
_BEFORE_SENTENCE = re.compile(r"(?:Abs\.|§|Art\.) ?[0-9]{1,4}[a-z]? \Z")
_AND = re.compile(r"(?<=\w)&(?=\w)")
_GREEK = re.compile(r"(?<![Ͱ-Ͽ])[α-ωΓΔΘΛΞΠΣΦΨΩ](?![Ͱ-Ͽ])")
_ABOUT = re.compile("≈ ?(?=[0-9])")
_EQUALS = re.compile(r"[0-9)²³%] ?\Z")


def half(place: Place, language: European) -> ReadForm | None:
    """``1/2 TL``, ``mit 1/2 Tasse``: a half agrees with the noun after it."""
    found = place.match(_HALF)
    if not found:
        return None
    word = found[0].rsplit(" ", 1)[1]
    unit = language.units.get(word) or language.units.get(found[1])
    noun = unit.one if unit else found[1]
    if not noun[0].isupper() or noun in tables.SENTENCE_STARTS or noun == "Fuß":
        return None
    gender = "f" if unit and unit.gender == "f" else german_nouns.gender(noun.split(" ")[0])
    words = german_nouns.half(gender, german_nouns.case(place))
    if unit is None:
        return ReadForm(place.start + 3, words)
    end = found.end() - (word.endswith(".") and word not in language.units)
    return ReadForm(end, f"{words} {noun}")


def half_hour(place: Place, language: European) -> ReadForm | None:
    """``um 1/2 8``."""
    found = place.match(_HALF_HOUR)
    if not found or not _BEFORE_HOUR.search(place.before):
        return None
    return ReadForm(found.end(), f"{_PARTS_OF_HOUR[found[1]]} {language.cardinal(found[2])}")


def short_month(place: Place, language: European) -> ReadForm | None:
    """``Jan.–Dez.``, ``im Feb.``."""
    names = language.month_words
    if found := place.match(_MONTHS):
        first, last = (names[language.months[found[at].lower()] - 1] for at in (1, 2))
        return ReadForm(found.end(), f"{first} {language.to} {last}")
    found = place.match(_ONE_MONTH)
    if not found or not _BEFORE_MONTH.search(place.before):
        return None
    ends = not place.text[found.end() :].strip()
    return ReadForm(found.end() - ends, names[language.months[found[1].lower()] - 1])


def dotted_name(place: Place, language: European) -> ReadForm | None:
    """``Git 2.28``, ``Kapitel 3.2``: a dot after a name is none of an amount, whose fraction has a comma."""
    found = place.match(_DOTTED)
    name = _NAME.search(place.before) if found else None
    if not found or not name or name[1] in tables.SENTENCE_STARTS or _AMOUNTS.fullmatch(name[1].lower()):
        return None
    if found[3] and found[3] in _measures(language):
        return None
    part = found[2]
    last = language.digits(part) if part.startswith("0") else language.cardinal(part)
    return ReadForm(found.end(2), f"{language.cardinal(found[1])} {language.dot} {last}")


@cache
def _measures(language: European) -> frozenset[str]:
    """Words after an amount."""
    words = {unit.one for unit in language.units.values()} | {unit.many for unit in language.units.values()}
    return frozenset({*words, *language.units, *language.currencies, *language.scales, "Uhr", "Prozent"})


def model(place: Place, language: European) -> ReadForm | None:
    """``ID.3``."""
    found = place.match(_MODEL)
    return ReadForm(found.end(), f"{found[1]} {language.cardinal(found[2])}") if found else None


def direction(place: Place, language: European) -> ReadForm | None:  # noqa: ARG001
    """``Wind aus NW``."""
    found = place.match(_DIRECTION)
    if not found or not _BEFORE_DIRECTION.search(place.before):
        return None
    words = "".join(_COMPASS[letter] for letter in found[1]).capitalize()
    return ReadForm(found.end(), words)


def percent(place: Place, language: European) -> ReadForm | None:
    """``5%ige``."""
    found = place.match(_PERCENT)
    if not found:
        return None
    return ReadForm(found.end(), f"{language.number(language.numerals.parse(found[1]))} prozent{found[2]}")


def sentence_of_law(place: Place, language: European) -> ReadForm | None:  # noqa: ARG001
    """``Abs. 1 S. 2``."""
    found = place.match(_SENTENCE_OF_LAW)
    return ReadForm(found.end(), "Satz ") if found and _BEFORE_SENTENCE.search(place.before) else None


def sign(place: Place, language: European) -> ReadForm | None:
    """``C&A``, ``π``, ``3,14 ≈ 3``."""
    if place.match(_AND):
        return ReadForm(place.start + 1, "und")
    found = place.match(_ABOUT)
    if found and _EQUALS.search(place.before):
        return ReadForm(found.end(), f"{language.operations['≈']} ")
    return None


def greek(place: Place, language: European) -> ReadForm | None:
    """A Greek letter outside a formula."""
    found = place.match(_GREEK)
    return ReadForm(found.end(), language.letters[found[0]]) if found else None


FORMS = (half_hour, half, short_month, dotted_name, model, direction, percent, sentence_of_law, sign, greek)
