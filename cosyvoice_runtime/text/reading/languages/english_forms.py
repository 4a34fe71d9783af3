"""Forms that English alone has: street addresses, eras, quarters, handles, letters for thousands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import english_tables as tables
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm, first

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language

_STREET = re.compile(
    r"(?<![\w.,-])([1-9][0-9]{0,4}) "
    r"((?:[NSEW]\.? )?(?:(?:[A-Z][a-z]+|[0-9]{1,3}(?:st|nd|rd|th)) ?){1,3}) ?"
    rf"({'|'.join(tables.STREETS)})(?![A-Za-z])\.?(?=[\s,;!?)]|$)"
)
_STATE = re.compile(rf"(?<=, )({'|'.join(tables.STATES)}),? ([0-9]{{5}})(?![0-9]|[.,][0-9])")
_ALONE = "|".join(state for state in tables.STATES if state not in tables.STATES_LIKE_WORDS)
_STATE_ALONE = re.compile(rf"(?<=[a-z], )({_ALONE})(?=\.?$|,)")
_ORDINAL = re.compile("([0-9]{1,3})(?:st|nd|rd|th)")
_SCALED = re.compile(
    r"(?<![\w.,-])([0-9]{1,3}(?:\.[0-9]+)?)(?:(k)(?![A-Za-z0-9])(?<!401k)|([MB]|bn)(?= [a-z]{2,}))"
)
_ERA = re.compile(r"(?<![\w.,])([0-9]{1,4})\s?(B\.?C\.?E|A\.?D|B\.?C|C\.?E)(?![A-Za-z])(?:\.(?=\s+[a-z]))?")
_QUARTER = re.compile(r"(?<![\w.,])([1-4])Q\s?'?((?:20)?[0-9]{2})(?![\w])")
_PENSION = re.compile(r"(?<![\w.,])40([13])\s?(?:\((k|b)\)|(k|b))(?![\w])")
_HANDLE = re.compile(r"(?<![\w.@])@(?=[A-Za-z0-9_])")
_SCORE = re.compile(r"(?<![\w.,–—-])([0-9]{1,3})[–—]([0-9]{1,3})(?![\w–—-]|[.,%][0-9])")
_MONTH_AND_DAY = re.compile(
    r"(?<![\w.,/-])(1[0-2]|0?[1-9])/(3[01]|[12][0-9]|0?[1-9])(?![\w/-]|[.,][0-9]|\s?[-+=])"
)
_OFFSET = re.compile(r"(?<=UTC|GMT)([-+−])(?=[0-9])")
_PLUSES = re.compile(r"(?<![\w])([A-Za-z])\+\+(?![\w+])")
_NUMERAL_ALONE = re.compile(rf"\A(?:{'|'.join(tables.ROMAN)})\Z")
_INCHES = re.compile(r"(?<![\w.,/])([0-9]{1,3}(?:\.[0-9]+)?)[\"”″](?![\w\"])")
_PER = re.compile(r"(?<![\w.,/])([0-9]+(?:\.[0-9]+)?)/([a-z]{2,})(?![\w/])")
_DAYS = "|".join(sorted(tables.WEEKDAYS, key=len, reverse=True))
_WEEKDAYS = re.compile(rf"(?<![\w])({_DAYS})\.?\s?[-–]\s?({_DAYS})(?![A-Za-z])\.?")
_SHORT_DATE = re.compile(
    r"(?<![\w.,/-])(1[0-2]|0?[1-9])/(1[3-9]|2[0-9]|3[01])/([0-9]{2})(?![\w/-]|[.,][0-9])"
)


def street(place: Place, language: Language) -> ReadForm | None:
    """``1428 Elm St``: the number in pairs, the kind of street in full."""
    found = place.match(_STREET)
    if not found:
        return None
    number = found[1]
    in_pairs = len(number) in (3, 4) and number[-2:] != "00"
    spoken = language.pairs(number) if in_pairs else language.cardinal(number)
    names = " ".join(tables.STREETS.get(word.rstrip("."), word) for word in found[2].split())
    names = re.sub(r"^([NSEW])(?= )", lambda match: tables.QUARTERS[match[1]], names)
    names = _ORDINAL.sub(lambda match: language.ordinal(int(match[1])), names)
    kind = tables.STREETS.get(found[3].rstrip("."), found[3])
    return ReadForm(found.end(), " ".join(filter(None, (spoken, names, kind))))


def state(place: Place, language: Language) -> ReadForm | None:
    """``CA 95051`` and ``NY`` after a place's name and a comma."""
    if found := place.match(_STATE):
        return ReadForm(found.end(), f"{tables.STATES[found[1]]} {language.digits(found[2])}")
    found = place.match(_STATE_ALONE)
    return ReadForm(found.end(), tables.STATES[found[1]]) if found else None


def own(place: Place, language: Language) -> ReadForm | None:
    """A form that no other language has."""
    found = first(_FORMS, place, language)
    if found is not None:
        return found
    if pluses := place.match(_PLUSES):
        return ReadForm(pluses.end(), f"{pluses[1]} plus plus")
    if roman := place.match(_NUMERAL_ALONE):
        return ReadForm(roman.end(), language.cardinal(str(tables.ROMAN[roman[0]])))
    handle = place.match(_HANDLE)
    return ReadForm(handle.end(), "at ") if handle else None


def _scaled(place: Place, language: Language) -> ReadForm | None:
    found = place.match(_SCALED)
    if not found:
        return None
    number = language.number(language.numerals.parse(found[1]))
    return ReadForm(found.end(), f"{number} {language.scales[found[2] or found[3]]}")


def _score(place: Place, language: Language) -> ReadForm | None:
    """``112–108``: a falling pair with a dash is a score."""
    found = place.match(_SCORE)
    if not found or int(found[1]) <= int(found[2]):
        return None
    return ReadForm(found.end(), language.ranged(language.cardinal(found[1]), language.cardinal(found[2])))


def _due_date(place: Place, language: Language) -> ReadForm | None:
    """``on 3/14``: month and day after a word that a date follows."""
    found = place.match(_MONTH_AND_DAY) if place.word_before in tables.BEFORE_DATE else None
    if not found:
        return None
    day = language.ordinal(int(found[2])).replace("-", " ")
    return ReadForm(found.end(), f"{tables.MONTH_NAMES[int(found[1]) - 1]} {day}")


def _offset(place: Place, language: Language) -> ReadForm | None:
    """``UTC+9``."""
    found = place.match(_OFFSET)
    if not found:
        return None
    return ReadForm(found.end(), f" {language.plus if found[1] == '+' else language.minus} ")


def _era(place: Place, language: Language) -> ReadForm | None:
    found = place.match(_ERA)
    if not found:
        return None
    digits = found[1]
    year = language.pairs(digits) if len(digits) == 3 else language.year(int(digits))
    return ReadForm(found.end(), f"{year} {found[2].replace('.', '')}")


def _quarter(place: Place, language: Language) -> ReadForm | None:
    found = place.match(_QUARTER)
    if not found:
        return None
    year = language.cardinal(found[2]) if len(found[2]) == 2 else language.year(int(found[2]))
    return ReadForm(found.end(), f"the {language.ordinal(int(found[1]))} quarter of {year}")


def _pension(place: Place, language: Language) -> ReadForm | None:
    found = place.match(_PENSION)
    if not found:
        return None
    return ReadForm(found.end(), f"four oh {language.digits(found[1])} {found[2] or found[3]}")


def _weekdays(place: Place, language: Language) -> ReadForm | None:
    found = place.match(_WEEKDAYS)
    if not found:
        return None
    return ReadForm(found.end(), language.ranged(tables.WEEKDAYS[found[1]], tables.WEEKDAYS[found[2]]))


def _short_date(place: Place, language: Language) -> ReadForm | None:
    found = place.match(_SHORT_DATE)
    if not found:
        return None
    month, day = tables.MONTH_NAMES[int(found[1]) - 1], language.ordinal(int(found[2])).replace("-", " ")
    return ReadForm(found.end(), f"{month} {day} {_short_year(found[3], language)}")


def _short_year(digits: str, language: Language) -> str:
    return f"zero {language.cardinal(digits[1])}" if digits[0] == "0" else language.cardinal(digits)


def _measured(place: Place, language: Language) -> ReadForm | None:
    """``12"`` outside of quotes, and ``12/kg``."""
    inches = place.match(_INCHES)
    if inches and place.text.count('"', 0, place.start) % 2 == 0:
        numeral = language.numerals.parse(inches[1])
        return ReadForm(inches.end(), language.counted(numeral, language.units["in"]))
    per = place.match(_PER)
    if not per or per[2] not in language.per_units:
        return None
    number = language.number(language.numerals.parse(per[1]))
    return ReadForm(per.end(), language.per(number, language.per_units[per[2]]))


_FORMS = (
    _scaled,
    _score,
    _due_date,
    _offset,
    _era,
    _quarter,
    _pension,
    _weekdays,
    _short_date,
    _measured,
)
