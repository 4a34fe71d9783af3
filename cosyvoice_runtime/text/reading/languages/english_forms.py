"""Forms that English alone has: street addresses, eras, quarters, handles, letters for thousands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import english_machines as machines
from cosyvoice_runtime.text.reading.languages import english_maths as maths
from cosyvoice_runtime.text.reading.languages import english_names as names
from cosyvoice_runtime.text.reading.languages import english_sources as sources
from cosyvoice_runtime.text.reading.languages import english_tables as tables
from cosyvoice_runtime.text.reading.languages import english_words as listed
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm, first

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language, Unit

_PLAIN = re.compile(
    r"[a-z]{4,}(?=[ ,]|$)|[A-Z][a-z]{3,}(?=,|$| [a-z])|[0-9]{1,3}(?= (?!error|status|respon|redir)[a-z]{4})"
)
"""A word or a number in front of a word, which is none of these forms."""
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
_HANDLE = re.compile(r"(?<![\w.@])@(?:(?=[A-Za-z0-9_])|\s(?=[\w$€£]))")
_NUMERAL = re.compile(r"(?<![\w.-])([IVX]{2,5})(?![\w'’]|\.[A-Za-z])(\s(?:century|centuries)\b)?")
_NAME = re.compile(r"(?:\A|[\s(\"“'’/-])([A-Z][A-Za-z]*[a-z]|[A-Z]{3,})\.?\s\Z")
_NO_NUMERAL = re.compile(
    r"\s?(?:fluids?|drips?|lines?|antibiotics?|therapy|bags?|access|catheters?|injections?|infusions?|poles?|doses?|"
    r"push|needles?|chromosomes?|treatment|solution)\b"
)
_ION = re.compile(
    r"(?<![\w])([A-Z][a-z]?(?:[0-9]?[A-Z][a-z]?)?)([1-4²³⁴])?([⁺⁻]|[+](?=[\s,.;)]|$))(?<![A-Z]\+)"
)
_COORDINATE = re.compile(
    r"(?<![\w.,])([0-9]{1,3}(?:\.[0-9]+)?)\s?°\s?(?:([0-9]{1,2}(?:\.[0-9]+)?)['’′]\s?(?:([0-9]{1,2}(?:\.[0-9]+)?)"
    r"[\"”″]\s?)?)?([NSEW])(?![A-Za-z])"
)
_ANGLE = re.compile(r"(?<![\w.,])([0-9]{1,3})°\s?([0-9]{1,2})['’′](?:\s?([0-9]{1,2}(?:\.[0-9]+)?)[\"”″])?()")
_PER_WORD = re.compile(r"(?<=[A-Za-z])/([A-Za-z]{1,8})(?![\w/])")
_COUNTED_WORD = re.compile(r"[0-9][0-9.,]*\s?[kKMB]?\+?\s[a-z]{2,12}\Z")
_FRACTION_OF_INCH = re.compile(r"(?<![\w.,/])(?:([0-9]{1,3})[ -])?([0-9]{1,2})/([0-9]{1,2})[\"”″](?!\w)")
_BOTH = re.compile(r"(?<![\w.,/])([0-9]{1,4})/(?=[0-9]{1,4}\s?[kMG](?:bps|Hz|B/s)\b)")
_OVER = re.compile(r"(?<![\w.,/])([1-9][0-9]{1,3})/([1-9][0-9]{2,3})(?![\w/]|[.,%][0-9])")
_FOR = re.compile(r"(?<=[a-z0-9] )x (?=[0-9]{1,3} (?:days?|weeks?|months?|years?|doses?)\b)")
_AT = re.compile(r"(?<=[a-z0-9])@(?=v?[0-9])")
_PRESSURE = re.compile(
    r"(?<![\w.,/])([0-9]{2,3})/([0-9]{2,3})(?![\w/]|[.,%][0-9])(?:\s?mm\s?Hg(?![A-Za-z]))?"
)
_PRESSURE_BEFORE = re.compile(
    r"(?:\bBP|[Pp]ressure)(?: (?:was|is|of|reading|at|around|about|below|above)){0,3}:? \Z"
)
_BASIS_POINTS = re.compile(r"(?<![\w.,])([0-9]{1,3}(?:\.[0-9]+)?)(?:\s?[-–]\s?([0-9]{1,3}))?[\s-]?bps(?!\w)")
_DOTTED_UNIT = re.compile(
    r"(?<![\w.,])([0-9]+(?:\.[0-9]+)?)(?:\s?[-–]\s?([0-9]+))?([\s-]?)"
    r"((?i:ft|oz|c(?=\. [a-z])|tbsps?|tsps?|lbs?|in|yds?|mi|hrs?|mins?|secs?|gal|qts?|pts?|yrs?|mos?|wks?)"
    r"|cm|km|mm|kg|ml)"
    r"\.(?=\s(?:[a-z(]|[0-9]{1,2}\s?(?:min|sec|in|oz)\b)|[,;:)-])"
)
_SCORE = re.compile(r"(?<![\w.,–—-])([0-9]{1,3})[–—]([0-9]{1,3})(?![\w–—-]|[.,%][0-9])")
_MONTH_AND_DAY = re.compile(
    r"(?<![\w.,/-])(1[0-2]|0?[1-9])/(3[01]|[12][0-9]|0?[1-9])(?![\w/-]|[.,][0-9]|\s?[-+=])"
)
_OFFSET = re.compile(r"(?<=UTC|GMT)([-+−])(?=[0-9])")
_PLUSES = re.compile(r"(?<![\w])([A-Za-z])\+\+(?![\w+])")
_NUMERAL_ALONE = re.compile(rf"\A(?:{'|'.join(tables.ROMAN)})\Z")
_INCHES = re.compile(
    r"(?<![\w.,/])([0-9]{1,3}(?:\.[0-9]+)?)(?:\s?[-–]\s?([0-9]{1,3}(?:\.[0-9]+)?))?[\"”″](?![\w\"])"
)
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
    at = place.text[place.start]
    if at == " ":
        return maths.spaced(place, language)
    if place.match(_PLAIN) and place.word_before not in listed.BEFORE_CODE:
        return None
    return first(_DIGITS if at.isdigit() else _LETTERS if at.isalpha() else _SIGNS, place, language)


def _scaled(place: Place, language: Language) -> ReadForm | None:
    found = place.match(_SCALED)
    if not found or (found[3] in ("M", "B") and place.word_before in listed.BEFORE_LABEL):
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
    before = place.word_before
    found = place.match(_MONTH_AND_DAY) if before in tables.BEFORE_DATE or before == "by" else None
    if not found or (before == "by" and int(found[1]) < int(found[2]) <= 12):
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
        unit = language.units["in"]
        if language.qualifies(place, inches.end()):
            unit = unit._replace(many=unit.one)
        return ReadForm(inches.end(), _one_or_range(inches, unit, language))
    per = place.match(_PER)
    if not per or per[2] not in language.per_units:
        return None
    number = language.number(language.numerals.parse(per[1]))
    return ReadForm(per.end(), language.per(number, language.per_units[per[2]]))


def _pluses(place: Place, language: Language) -> ReadForm | None:  # noqa: ARG001
    found = place.match(_PLUSES)
    return ReadForm(found.end(), f"{found[1]} plus plus") if found else None


def _numeral_alone(place: Place, language: Language) -> ReadForm | None:
    found = place.match(_NUMERAL_ALONE)
    return ReadForm(found.end(), language.cardinal(str(tables.ROMAN[found[0]]))) if found else None


def _handle(place: Place, language: Language) -> ReadForm | None:  # noqa: ARG001
    """``@`` before a name, or between words."""
    if found := place.match(_AT):
        return ReadForm(found.end(), " at ")
    found = place.match(_HANDLE)
    return ReadForm(found.end(), "at ") if found else None


def _per_word(place: Place, language: Language) -> ReadForm | None:
    """``100 requests/min``: a stroke after what is counted."""
    found = place.match(_PER_WORD)
    if not found or found[1] not in language.per_units or not _COUNTED_WORD.search(place.before):
        return None
    return ReadForm(found.end(), f" {language.per('', language.per_units[found[1]]).strip()}")


def _for(place: Place, language: Language) -> ReadForm | None:  # noqa: ARG001
    found = place.match(_FOR)
    return ReadForm(found.end(), "for ") if found else None


def _pair(place: Place, language: Language) -> ReadForm | None:
    """Two numbers with a stroke that are no fraction, or a fraction of an inch."""
    inch = place.match(_FRACTION_OF_INCH)
    if inch and place.text.count('"', 0, place.start) % 2 == 0 and int(inch[3]):
        words = language.fraction(int(inch[2]), int(inch[3]))
        words = language.mixed(language.cardinal(inch[1]), words) if inch[1] else words
        one = not inch[1] or language.qualifies(place, inch.end())
        return ReadForm(inch.end(), f"{words} {'inch' if one else 'inches'}")
    if found := place.match(_BOTH):
        return ReadForm(found.end(), f"{language.cardinal(found[1])} {language.signs['/']} ")
    found = place.match(_OVER)
    if not found or int(found[2]) <= 100 or found[1] == found[2]:
        return None
    return ReadForm(found.end(), language.over(language.cardinal(found[1]), language.cardinal(found[2])))


def _numeral(place: Place, language: Language) -> ReadForm | None:
    """``Table IV``, ``Final Fantasy VII``, ``the XIX century``."""
    found = place.match(_NUMERAL)
    if not found or found[1] not in tables.ROMAN:
        return None
    value = tables.ROMAN[found[1]]
    if found[2]:
        return ReadForm(found.end(1), language.ordinal(value).replace("-", " "))
    named = _NAME.search(place.before)
    if (
        not named
        or named[1] in listed.NO_NAMES
        or (found[1] in ("IV", "XX", "VI", "XI") and _NO_NUMERAL.match(place.text, found.end()))
    ):
        return None
    words = language.roman(named[1].lower(), value) or language.cardinal(str(value))
    return ReadForm(found.end(1), words)


def _ion(place: Place, language: Language) -> ReadForm | None:
    """``Ca²⁺``, ``Fe3+``."""
    found = place.match(_ION)
    if not found:
        return None
    charge = {"²": "2", "³": "3", "⁴": "4"}.get(found[2], found[2])
    sign = language.plus if found[3] in "+⁺" else language.minus
    return ReadForm(
        found.end(), " ".join(filter(None, (found[1], charge and language.cardinal(charge), sign)))
    )


def _coordinate(place: Place, language: Language) -> ReadForm | None:
    """``40.7128° N``, ``51°30'26"N``."""
    found = place.match(_COORDINATE) or place.match(_ANGLE)
    if not found:
        return None
    parts = zip(found.groups()[:3], ("degree", "minute", "second"), strict=True)
    words = [
        f"{language.number(language.numerals.parse(number))} {unit}{'' if number == '1' else 's'}"
        for number, unit in parts
        if number
    ]
    words += [tables.QUARTERS[found[4]].lower()] if found[4] else []
    return ReadForm(found.end(), " ".join(words))


def _blood_pressure(place: Place, language: Language) -> ReadForm | None:
    """``128/82``: a pair that only a pressure of blood is."""
    found = place.match(_PRESSURE)
    if not found or not (80 <= int(found[1]) <= 250 and 40 <= int(found[2]) <= 140):
        return None
    named = _PRESSURE_BEFORE.search(place.before)
    if not named and (len(found[1]) == 2 or int(found[1]) <= int(found[2]) or found[2].endswith("00")):
        return None
    return ReadForm(found.end(), language.over(language.pressure(found[1]), language.pressure(found[2])))


def _basis_points(place: Place, language: Language) -> ReadForm | None:
    """``25 bps``: few of them are no speed of a line."""
    found = place.match(_BASIS_POINTS)
    if not found:
        return None
    low, high = (found[part] and language.number(language.numerals.parse(found[part])) for part in (1, 2))
    unit = "basis point" if found[1] == "1" and not high else "basis points"
    return ReadForm(found.end(), f"{language.ranged(low, high) if high else low} {unit}")


def _one_or_range(found: re.Match[str], unit: Unit, language: Language) -> str:
    """An amount of a unit, or a range of amounts: the numbers are the first two groups."""
    low = language.numerals.parse(found[1])
    return (
        language.range_of(low, language.numerals.parse(found[2]), unit)
        if found[2]
        else language.counted(low, unit)
    )


def _dotted_unit(place: Place, language: Language) -> ReadForm | None:
    """``5 ft. tall``: the dot of a unit ends no sentence before a small letter."""
    found = place.match(_DOTTED_UNIT)
    if not found:
        return None
    written = "cup" if found[4] == "c" else found[4]
    unit = language.units[written if written in language.units else written.lower()]
    if found[3] == "-" or language.qualifies(place, found.end()):
        unit = unit._replace(many=unit.one)
    return ReadForm(found.end(), _one_or_range(found, unit, language))


def _marks(place: Place, language: Language) -> ReadForm | None:  # noqa: ARG001
    return sources.lived(place) or sources.section_sign(place)


_DIGITS = (
    names.digits,
    machines.digits,
    sources.numbers,
    _scaled,
    _score,
    _due_date,
    _era,
    _quarter,
    _pension,
    _short_date,
    _coordinate,
    _blood_pressure,
    _basis_points,
    _pair,
    _dotted_unit,
    _measured,
    maths.digits,
)
_LETTERS = (
    _weekdays,
    _pluses,
    _numeral_alone,
    _numeral,
    names.letters,
    _for,
    _ion,
    machines.letters,
    sources.words,
    maths.letters,
    maths.greek,
)
_SIGNS = (_offset, _handle, _marks, _per_word, names.signs, machines.signs, maths.signs)
"""The readers that are tried where a digit, a letter or another sign stands."""
