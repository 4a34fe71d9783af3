"""Forms that English alone has: street addresses, Roman numbers after names, ions, handles, scores."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import english_algebra as algebra
from cosyvoice_runtime.text.reading.languages import english_amounts as amounts
from cosyvoice_runtime.text.reading.languages import english_dates as dates
from cosyvoice_runtime.text.reading.languages import english_habits as habits
from cosyvoice_runtime.text.reading.languages import english_machines as machines
from cosyvoice_runtime.text.reading.languages import english_maths as maths
from cosyvoice_runtime.text.reading.languages import english_names as names
from cosyvoice_runtime.text.reading.languages import english_sources as sources
from cosyvoice_runtime.text.reading.languages import english_tables as tables
from cosyvoice_runtime.text.reading.languages import english_words as listed
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm, first

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language

_PLAIN = re.compile(
    r"[a-z]{4,}(?=[ ,]|$)|[A-Z][a-z]{3,}(?=,|$| [a-z])|[0-9]{1,3}"
    r"(?= (?!error|status|respon|redir|page)[a-z]{4}(?!\.[,;)]))"
)
"""A word or a number in front of a word, which is none of these forms."""
_ENDS = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:,(?![0-9])|[;)?\]]|\.?$)")
"""A number with nothing after it that would be a unit or a second number."""
_STREET = re.compile(
    r"(?<![\w.,-])([1-9][0-9]{0,4}) "
    r"((?:[NSEW]\.? )?(?:(?:[A-Z][a-z]+|[0-9]{1,3}(?:st|nd|rd|th)) ?){1,3}) ?"
    rf"({'|'.join(tables.STREETS)})(?![A-Za-z])\.?(?=[\s,;!?)]|$)"
)
_STATE = re.compile(
    rf"(?<=, )({'|'.join(tables.STATES)}),? ([0-9]{{5}})(?:-([0-9]{{4}}))?(?![0-9]|[.,][0-9])"
)
_ALONE = "|".join(state for state in tables.STATES if state not in tables.STATES_LIKE_WORDS)
_STATE_ALONE = re.compile(rf"(?<=[a-z], )({_ALONE})(?=\.?$|,)")
_CAPITAL = re.compile(r"\s(?!(?:[NS][EW]?|[EW])(?![\w.]))[A-Z]")
_ORDINAL = re.compile("([0-9]{1,3})(?:st|nd|rd|th)")
_PENSION = re.compile(r"(?<![\w.,])40([13])\s?(?:\((k|b)\)|(k|b))(?![\w])")
_GRADE = re.compile(r"(?<![\w])([A-F])(−|\+)(?=[\s,.;)]|$)")
_BARE_UNITS = re.compile(
    r"(?<![\w/])(km|mi|m|MB|GB|KB|kB|ft|kg|g|mg|mL|L|kWh|mmol)/(h|hr|s|sec|min|m²|m³|m2|m3|L|dL|mL|kg|day|mol)(?![\w/])"
)
_BARE_SQUARE = re.compile(r"(?<=[ )])(?:mm|cm|m|km|ft|in|mi)(?:[²³]|\^[23])(?!\w)")
_FORT = re.compile(r"(?<![\w])Ft\.? (?=[A-Z][a-z]+)")
_ISOTOPE = re.compile(
    r"(?<![\w.,])(?:(23[3-9]|24[01])(U|Pu|Np|Am)|(1[234])(C)(?= dating| isotope| and | to 1)"
    r"|(131|129)(I)"
    r"|(13[47])(Cs)|(60)(Co)|(90)(Sr)|(40)(K)(?= dating)|(1[68])(O)|(15|14(?=N \+ e))(N)"
    r"|(222)(Rn)|(226)(Ra))(?!\w)"
)
_CODE = re.compile(r"(?:USD|EUR|GBP|CAD|AUD|NZD|SGD|HKD) ?(?=[$€£][0-9])|(?:USD|EUR|GBP)(?!\w)")
_SIGNED = re.compile(r"[$€£][0-9][0-9.,]*[kKMB]?\s?\Z")
_HANDLE = re.compile(r"(?<![\w.@])@(?:(?=[A-Za-z0-9_])|\s(?=[\w$€£≤≥<>~(]))")
_NUMERAL = re.compile(r"(?<![\w.-])([IVX]{2,5})(?![\w'’]|\.[A-Za-z])(\s(?:century|centuries)\b)?")
_NAME = re.compile(r"(?:\A|[\s(\"“'’/-])([A-Z][A-Za-z]*[a-z]|[A-Z]{3,})\.?\s\Z")
_NO_NUMERAL = re.compile(
    r"\s?(?:fluids?|drips?|lines?|antibiotics?|therapy|bags?|access|catheters?|injections?|infusions?|poles?|doses?|"
    r"push|needles?|chromosomes?|treatment|solution)\b"
)
_ION = re.compile(
    r"(?:(?<!\w)|(?<=(?<![\w.])[0-9])(?=e))((?:[A-Z][a-z]?(?:[0-9]?[A-Z][a-z]?)?)|e(?=[⁺⁻]))([1-4²³⁴])?([⁺⁻](?![⁰¹²³⁴-⁹])|[+](?=[\s,.;)]|$))(?<![A-Z]\+)"
)
_FOR = re.compile(r"(?<=[A-Za-z0-9] )[x×] (?=[0-9]{1,3} (?:days?|weeks?|months?|years?|doses?)\b)")
_AT = re.compile(r"(?<=[A-Za-z0-9])@(?=v?[0-9])")
_BY = re.compile(r"(?<=[0-9][\"”″'’′] )x (?=[0-9])")
_RECORD = re.compile(r"(?<![\w.,–—-])([0-9]{1,3})–([0-9]{1,3})–([0-9]{1,3})(?![\w–—-]|[.,%][0-9])")
_RECORD_OF_FIGHTS = re.compile(r"(?<![\w.,–—-])([0-9]{1,3})-([0-9]{1,3})-([0-9]{1,3})(?![\w–—-]|[.,%][0-9])")
_OF_FIGHTS = re.compile(
    r"(?i)\b(?:record|KOs?|TKOs?|undefeated|box(?:er|ing)|MMA|UFC|W-L-[DT]|W-D-L|draws?)\b"
)
_PLUS_OF_INITIALS = re.compile(r"(?<=[A-Z]{2})\+(?=[A-Z]{2})")
_CENTURY = re.compile(r"(?<=[0-9](?:st|nd|rd|th) )c\.(?= (?:BCE?|AD|CE|[a-z]{3}))")
_FLOOR = re.compile(r"(?<=[0-9](?:st|nd|rd|th) )Fl(?:\.(?=,|\s[a-z])|(?=[,.]))")
_PLUSES = re.compile(r"(?<![\w])([A-Za-z])\+\+(?![A-Za-z_+])")
_NUMERAL_ALONE = re.compile(rf"\A(?:{'|'.join(tables.ROMAN)})\Z")


def street(place: Place, language: Language) -> ReadForm | None:
    """``1428 Elm St``: the number in pairs, the kind of street in full."""
    found = place.match(_STREET)
    if not found:
        return None
    number = found[1]
    in_pairs = len(number) in (3, 4) and number[1:] != "00" and number[-3:] != "000"
    spoken = language.pairs(number) if in_pairs else language.cardinal(number)
    names = " ".join(tables.STREETS.get(word.rstrip("."), word) for word in found[2].split())
    names = re.sub(r"^([NSEW])\.?(?= )", lambda match: tables.QUARTERS[match[1]], names)
    names = _ORDINAL.sub(lambda match: language.ordinal(int(match[1])), names)
    kind = tables.STREETS.get(found[3].rstrip("."), found[3])
    kind += "." if found[0].endswith(".") and _CAPITAL.match(place.text, found.end()) else ""
    return ReadForm(found.end(), " ".join(filter(None, (spoken, names, kind))))


def state(place: Place, language: Language) -> ReadForm | None:
    """``CA 95051`` and ``NY`` after a place's name and a comma."""
    if found := place.match(_STATE):
        code = language.grouped([language.digits(part) for part in found.groups()[1:] if part])
        return ReadForm(found.end(), f"{tables.STATES[found[1]]} {code}")
    found = place.match(_STATE_ALONE)
    return ReadForm(found.end(), tables.STATES[found[1]]) if found else None


def own(place: Place, language: Language) -> ReadForm | None:
    """A form that no other language has."""
    at = place.text[place.start]
    if at == " ":
        return maths.spaced(place, language)
    if place.match(_PLAIN) and "§" not in place.before[-2:] and place.word_before not in listed.BEFORE_CODE:
        return None
    if at.isdigit():
        return first(_NAMED if place.match(_ENDS) else _DIGITS, place, language)
    return first(_LETTERS if at.isalpha() else _SIGNS, place, language)


def _record(place: Place, language: Language) -> ReadForm | None:
    """``10–6–1``: games won, lost and drawn."""
    found = place.match(_RECORD)
    if not found and place.near(_OF_FIGHTS):
        found = place.match(_RECORD_OF_FIGHTS)
    if not found:
        return None
    return ReadForm(found.end(), f"{language.pause} ".join(map(language.cardinal, found.groups())))


def _pension(place: Place, language: Language) -> ReadForm | None:
    found = place.match(_PENSION)
    if not found:
        return None
    return ReadForm(found.end(), f"four oh {language.digits(found[1])} {found[2] or found[3]}")


def _pluses(place: Place, language: Language) -> ReadForm | None:  # noqa: ARG001
    found = place.match(_PLUSES)
    return ReadForm(found.end(), f"{found[1]} plus plus") if found else None


def _numeral_alone(place: Place, language: Language) -> ReadForm | None:
    found = place.match(_NUMERAL_ALONE)
    return ReadForm(found.end(), language.cardinal(str(tables.ROMAN[found[0]]))) if found else None


def _handle(place: Place, language: Language) -> ReadForm | None:
    """``@`` before a name, or between words; a plus between initials."""
    if found := place.match(_PLUS_OF_INITIALS):
        return ReadForm(found.end(), f" {language.plus} ")
    if found := place.match(_AT):
        return ReadForm(found.end(), " at ")
    found = place.match(_HANDLE)
    return ReadForm(found.end(), "at ") if found else None


def _for(place: Place, language: Language) -> ReadForm | None:
    """``x`` before a time or a second length: ``500 mg x 10 days``, ``2" x 4"``."""
    if found := place.match(_BY):
        return ReadForm(found.end(), f"{language.by} ")
    found = place.match(_FOR)
    return ReadForm(found.end(), "for ") if found else None


def _isotope(place: Place, language: Language) -> ReadForm | None:
    """``²³⁵U``: the number of an isotope after its letters."""
    found = place.match(_ISOTOPE)
    if not found:
        return None
    number, element = filter(None, found.groups())
    return ReadForm(found.end(), f"{element} {language.name_number(number)}")


def _grade(place: Place, language: Language) -> ReadForm | None:
    """``A−`` and ``B+``, and units without a number: ``km/h``."""
    if found := place.match(_CENTURY):
        return ReadForm(found.end(), "century")
    if found := place.match(_FLOOR):
        return ReadForm(found.end(), "Floor")
    if found := place.match(_FORT):
        return ReadForm(found.end(), "Fort ")
    if (found := place.match(_CODE)) and (
        found[0][3:] or place.text.startswith(("$", "€", "£"), found.end())
    ):
        return ReadForm(found.end(), "")
    if found and _SIGNED.search(place.before):
        return ReadForm(found.end(), "")
    if found := place.match(_GRADE):
        return ReadForm(found.end(), f"{found[1]} {language.plus if found[2] == '+' else language.minus}")
    if found := place.match(_BARE_SQUARE):
        return ReadForm(found.end(), language.units[found[0]].many)
    found = place.match(_BARE_UNITS)
    if not found:
        return None
    return ReadForm(found.end(), language.per(language.units[found[1]].many, language.per_units[found[2]]))


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


def _marks(place: Place, language: Language) -> ReadForm | None:  # noqa: ARG001
    return sources.section_sign(place)


_NAMED = (algebra.group, sources.section, names.digits, machines.digits, dates.short_year)
_DIGITS = (
    algebra.group,
    _isotope,
    habits.digits,
    names.digits,
    machines.digits,
    sources.section,
    sources.numbers,
    *dates.DIGITS,
    _record,
    _pension,
    *amounts.DIGITS,
    algebra.digits,
    maths.digits,
)
_LETTERS = (
    dates.weekdays,
    dates.month,
    habits.letters,
    _pluses,
    _numeral_alone,
    _numeral,
    names.letters,
    _for,
    _grade,
    _ion,
    machines.letters,
    sources.words,
    algebra.letters,
    maths.letters,
    maths.greek,
)
_SIGNS = (
    dates.offset,
    dates.until,
    habits.signs,
    _handle,
    _marks,
    amounts.per_word,
    amounts.and_money,
    machines.signs,
    names.signs,
    algebra.signs,
    maths.signs,
)
"""The readers that are tried where a digit, a letter or another sign stands."""
