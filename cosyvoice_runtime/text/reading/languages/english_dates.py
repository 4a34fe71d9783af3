"""English: eras, quarters, weekdays, short dates, hours and offsets: ``340 AD``, ``2Q24``, ``UTC+9``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import english_tables as tables
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language

_AD = re.compile(r"([1-9][0-9]{2})(?![\w/]|[.,][0-9])")
_TO_ERA = re.compile(
    r"(?<=BC)[–-](?=AD )|(?<=BCE)[–-](?=CE )"
    r"|(?:(?<=BCE)|(?<=BC)|(?<=AD)|(?<=[0-9] CE))\s?[–-]\s?(?=[0-9]{1,4}\s?(?:BCE?|AD|CE)(?!\w))"
)
_ERA = re.compile(r"(?<![\w.,])([0-9]{1,4})\s?(B\.?C\.?E|A\.?D|B\.?C|C\.?E)(?![A-Za-z])(?:\.(?=\s+[a-z]))?")
_QUARTER = re.compile(r"(?<![\w.,])([1-4])Q\s?'?((?:20)?[0-9]{2})(?![\w])")
_MONTH_AND_DAY = re.compile(
    r"(?<![\w.,/-])(1[0-2]|0?[1-9])/(3[01]|[12][0-9]|0?[1-9])(?![\w/-]|[.,][0-9]|\s?[-+=])"
)
_OFFSET = re.compile(r"(?<=UTC|GMT)([-+−])(?=[0-9])")
_DAYS = "|".join(sorted(tables.WEEKDAYS, key=len, reverse=True))
_WEEKDAYS = re.compile(rf"(?<![\w])({_DAYS})\.?\s?[-–]\s?({_DAYS})(?![A-Za-z])(?:\.(?=,|\s[a-z0-9]))?")
_SHORT_DATE = re.compile(
    r"(?<![\w.,/-])(1[0-2]|0?[1-9])/(1[3-9]|2[0-9]|3[01])/([0-9]{2})(?![\w/-]|[.,][0-9])"
)

_EARLY_DATE = re.compile(r"(?<![\w.,/-])(1[0-2]|0?[1-9])/(1[0-2]|0?[1-9])/([0-9]{2})(?![\w/-]|[.,][0-9])")
"""A day up to the twelfth of a month, which three numbers of another kind may be."""
_DATED_BEFORE = frozenset(
    ("born", "died", "dated", "by", "signed", "filed", "updated", "issued", "exp", "expires", "expired")
)


_HOURS = re.compile(r"(?<![\w.,])([01][0-9]|2[0-4])([0-5][0-9])(?:\s?(?:hrs|hours)\b|h(?!\w)|Z(?!\w))")
_RACE = re.compile(
    r"(?<![\w.,:])([0-9]{1,2}):([0-5][0-9])(?:\.([0-9]{1,3}))?(?:\s?/\s?(km|mi|mile|m|min))?(?![\w:]|[.,][0-9])"
)
_PACES = re.compile(
    r"(?<![\w.,:])([0-9]{1,2}):([0-5][0-9])\s?[–-]\s?([0-9]{1,2}):([0-5][0-9])\s?/\s?(km|mi|mile|500m)(?!\w)"
)
_OF_YEAR = re.compile(r"(?<=[QH][1-4])['’](?=[0-9]{2}(?!\w))")
_UNDER = re.compile(r"(?<=sub-)([1-9][0-9]?):([0-5][0-9])(?![\w:])")
_SHORT_YEAR = re.compile(r"(?<=['’])0([1-9])(?![\w])")
_DUE_RANGE = re.compile(
    r"(?<![\w.,/-])(1[0-2]|0?[1-9])/(3[01]|[12][0-9]|0?[1-9])\s?[-–]\s?(1[0-2]|0?[1-9])/(3[01]|[12][0-9]|0?[1-9])"
    r"(?![\w/-]|[.,][0-9])"
)
_SHORT_HALF = re.compile(
    r"(?<![\w.,:])(1[0-2]|[1-9])(?::([0-5][0-9])([ap])|([ap])(?=\s?[-–]\s?(?:1[0-2]|[1-9])(?::[0-5][0-9])?[ap](?!\w))"
    r"|(?:(?<=[0-9][ap][-–][0-9])|(?<=[0-9][ap][-–][0-9]{2}))([ap]))(?![\w'’]|\.m)"
)
_TO_HOUR = re.compile(
    r"(?<=[0-9][ap])[-–](?=(?:1[0-2]|[1-9])(?::[0-5][0-9])?[ap](?!\w))|(?<=[0-9]:[0-5][0-9])[-–](?=(?:1[0-2]|[1-9])(?![\w:%/-]|[.,][0-9]))"
)
_TO_NEXT = re.compile(
    r"(?<=[0-9](?:st|nd|rd|th))\s?[–-]\s?(?=[0-9]{1,3}(?:st|nd|rd|th)(?!\w))"
    r"|(?<=[0-9] [ap]m|[0-9] [AP]M|[ap]\.m\.|.[0-9][ap]m)\s?[–-]\s?"
    r"(?=(?:midnight|noon|late|close|sunset|dusk|dawn)\b)"
    r"|(?<=[0-9]/[2-8])[–-](?=[1-9]/[2-8] (?:cups?|c\.|tsp|tbsp|inch|miles?|lbs?|oz)(?!\w))"
)
_WEEK = re.compile(r"(?<![\w.-])M[-–](F|Th|Sa|Su)(?=[\s,:;.)]|$)")
_WEEK_ENDS = {"F": "Friday", "Th": "Thursday", "Sa": "Saturday", "Su": "Sunday"}
_OF_HOURS = re.compile(
    r"[0-9]\s?(?:[ap]m?|[AP]M|[ap]\.m\.)(?!\w)|\b(?:[Oo]pen|[Hh]ours|[Cc]losed)\b|[0-9]\s?[–-]\s?[0-9]"
)
_OPEN = frozenset(("open", "closed", "from", "dates", "on", "away", "off"))
_UNTIL = re.compile(r"(?<=noon|.now)\s?[-–]\s?(?=[0-9])|(?<=midnight)\s?[-–]\s?(?=[0-9])")
_TO_NAMED = re.compile(r"(?<=[0-9a-z])\s?[–—-]\s?(?=(?:present|noon|midnight|now|[QH][1-4])\b)")
_DATED = re.compile(
    r"(?i)\b(?:closed(?: [0-9]{1,2}/[0-9]{1,2} (?:&|and))?|notes"
    r"|sync|meeting|mtg|check-in|stand-?up|demo|party|game)(?: (?:is|was))?:? \Z|"
    r"(?:birthday|b-?day|anniversary|deadline|date)(?: (?:is|was|of|on))?:? \Z|"
    r"\b(?:begin|start|end|expire|launche|open|close|arrive|leave|return)s? \Z|\bdated \Z|"
    r"\bfrom (?:[0-9]{1,2}/[0-9]{1,2} to )?\Z"
)
_NAMES = "Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec"
_MONTH = re.compile(
    rf"(?<![\w'’])({_NAMES})(\w*)(\.?)(?:(\s?[–/-]\s?)(?=(?:{_NAMES})\w*(?!\w))|(?![\w'’]|\.?,? ?[0-9]))"
)
_MONTH_BEFORE = re.compile(
    r"(?:(?<!\w)(?:in|by|through|thru|until|since|early|late|of|and|or|[Mm]id-?)|[a-z]\.?\s?[–/-]) ?\Z"
)
_MONTH_AFTER = re.compile(rf"\s(?:through|thru|to|and|or)\s(?:{_NAMES})(?:\w*)(?!\w)")
_EVENT = re.compile(
    r"[0-9]{1,2}/[0-9]{1,2} (?:emails?|meeting|call|game|class|appointment|appt|session|order|deadline|"
    r"party|show|visit|message|letter|interview|webinar|launch|release)(?!\w)"
    r"|[0-9]{1,2}/[0-9]{1,2},? (?:at|@) [0-9]"
)
_MONTH_OF_YEAR = re.compile(r"(?<![\w.,/-])(0?[1-9]|1[0-2])/((?:19|20)[0-9]{2})(?![\w/-]|[.,][0-9])")
_LISTED = re.compile(r"(?:[0-9]/[0-9]{1,2}(?:,| &|,? and|,? or)|\b[Dd]ates:?) \Z")
_OF_DATES = re.compile(r"(?i)\bdates?\b|\bon [0-9]{1,2}/[0-9]")
_POUNDS = re.compile(r"£\s?[0-9]|\bGBP\b")
_DOLLARS = re.compile(r"\$\s?[0-9]|\bUSD\b")
_SPANNED = re.compile(r"(?<=from )[0-9]{1,2}/[0-9]{1,2} to [0-9]{1,2}/[0-9]{1,2}(?![\w/])")


def short_year(place: Place, language: Language) -> ReadForm | None:
    """``'09``, ``AD 476``."""
    if place.before.endswith("AD ") and (found := place.match(_AD)):
        return ReadForm(found.end(), language.pairs(found[1]))
    found = place.match(_SHORT_YEAR)
    return ReadForm(found.end(), f"oh {language.cardinal(found[1])}") if found else None


def is_british(place: Place) -> bool:
    """Whether a sum in pounds, and none in dollars, stands nearby: days are before months there."""
    return place.near(_POUNDS) and not place.near(_DOLLARS)


def _due_range(place: Place, language: Language) -> ReadForm | None:
    """``12/24-12/26``: two days, since no fraction has such a number below."""
    found = place.match(_DUE_RANGE)
    if not found or not (int(found[2]) > 12 or int(found[4]) > 12 or place.word_before in _OPEN):
        return None
    days = (_month_and_day(found[part], found[part + 1], language) for part in (1, 3))
    return ReadForm(found.end(), language.ranged(*days))


def _near_pounds(found: re.Match[str], language: Language) -> str:
    day, month = language.ordinal(int(found[1])), tables.MONTH_NAMES[int(found[2]) - 1]
    return f"the {day} of {month}".replace("-", " ")


def _month_and_day(month: str, day: str, language: Language) -> str:
    return f"{tables.MONTH_NAMES[int(month) - 1]} {language.ordinal(int(day))}".replace("-", " ")


def _hours(place: Place, language: Language) -> ReadForm | None:
    """``0900 hrs``, ``1700h``."""
    found = place.match(_HOURS)
    if not found:
        return None
    hour = f"zero {language.cardinal(found[1][1])}" if found[1][0] == "0" else language.cardinal(found[1])
    if found[2] == "00":
        return ReadForm(found.end(), f"{hour} hundred hours")
    minute = f"oh {language.cardinal(found[2][1])}" if found[2][0] == "0" else language.cardinal(found[2])
    return ReadForm(found.end(), f"{hour} {minute} hours")


def _race(place: Place, language: Language) -> ReadForm | None:
    """``6:49.3`` and ``5:30/km``: minutes and seconds of a race."""
    if found := place.match(_UNDER):
        minutes = "" if found[2] == "00" else f" {language.cardinal(found[2].lstrip('0'))}"
        return ReadForm(found.end(), language.cardinal(found[1]) + minutes)
    if found := place.match(_PACES):
        low, high = (_minutes(found[part], found[part + 1], language) for part in (1, 3))
        per = language.per_units.get(found[5])
        words = language.ranged(low, high)
        return ReadForm(found.end(), language.per(words, per)) if per else None
    found = place.match(_RACE)
    if not found or not (found[3] or found[4] or int(found[1]) > 24):
        return None
    if found[2] == "00" and not found[3]:
        words = f"{language.cardinal(found[1])} minutes"
        return ReadForm(found.end(), language.per(words, language.per_units[found[4]]) if found[4] else words)
    seconds = f"oh {language.cardinal(found[2][1])}" if found[2][0] == "0" else language.cardinal(found[2])
    words = f"{language.cardinal(found[1])} {seconds}"
    if found[3]:
        words += f" {language.point} {language.digits(found[3])}"
    return ReadForm(found.end(), language.per(words, language.per_units[found[4]]) if found[4] else words)


def _minutes(minutes: str, seconds: str, language: Language) -> str:
    """``9:05`` of a pace."""
    if seconds == "00":
        return language.cardinal(minutes)
    rest = f"oh {language.cardinal(seconds[1])}" if seconds[0] == "0" else language.cardinal(seconds)
    return f"{language.cardinal(minutes)} {rest}"


def until(place: Place, language: Language) -> ReadForm | None:
    """``noon–2pm``, ``2019–present``."""
    if found := place.match(_OF_YEAR):
        return ReadForm(found.end(), " ")
    found = (
        place.match(_UNTIL)
        or place.match(_TO_NAMED)
        or place.match(_TO_ERA)
        or place.match(_TO_HOUR)
        or place.match(_TO_NEXT)
    )
    return ReadForm(found.end(), f" {language.to} ") if found else None


_HALF_ALONE = re.compile(r"(?<![\w.,:])(1[0-2]|[1-9])()([ap])(?![\w'’]|\.m)")
_BEFORE_HOUR = frozenset(("at", "before", "after", "by", "until", "til", "till", "from", "around"))
_OF_HALVES = re.compile(r"[0-9]:[0-5][0-9][ap](?!\w)")


def _short_half(place: Place, language: Language) -> ReadForm | None:
    """``6:42a`` and ``8a–6p``: one letter for half of the day."""
    found = place.match(_SHORT_HALF)
    if not found and (place.word_before in _BEFORE_HOUR or place.near(_OF_HALVES)):
        found = place.match(_HALF_ALONE)
    if not found:
        return None
    hour, minute, *halves = found.groups()
    half = language.halves[f"{next(filter(None, halves))}m"]
    words = language.cardinal(hour)
    if minute and minute != "00":
        words += f" {'oh ' if minute[0] == '0' else ''}{language.cardinal(str(int(minute)))}".replace(
            "-", " "
        )
    return ReadForm(found.end(), f"{words} {half}")


def _due_date(place: Place, language: Language) -> ReadForm | None:
    """``on 3/14``: month and day after a word that a date follows."""
    before = place.word_before
    listed = _LISTED.search(place.before) and place.near(_OF_DATES)
    told = before in tables.BEFORE_DATE or before == "by" or listed or _DATED.search(place.before)
    found = place.match(_MONTH_AND_DAY) if told or place.match(_EVENT) else None
    month = place.match(_MONTH_OF_YEAR)
    if month and (len(month[1]) > 1 or place.text.strip() != month[0]):
        words = f"{tables.MONTH_NAMES[int(month[1]) - 1]} {language.year(int(month[2]))}"
        return ReadForm(month.end(), words)
    if before == "from" and not place.match(_SPANNED):
        return None
    if not found or (before == "by" and int(found[1]) < int(found[2]) <= 12):
        return None
    if int(found[2]) <= 12 and is_british(place):
        return ReadForm(found.end(), _near_pounds(found, language))
    return ReadForm(found.end(), _month_and_day(found[1], found[2], language))


def month(place: Place, language: Language) -> ReadForm | None:
    """``Jan.–Oct.``, ``in Feb.``, ``mid-Apr``: a month without a day, in short."""
    found = place.match(_MONTH)
    number = language.months.get((found[1] + found[2]).lower()) if found else None
    if not found or not number:
        return None
    name = tables.MONTH_NAMES[number - 1]
    if found[4]:
        joint = language.pause if "/" in found[4] else f" {language.to}"
        return ReadForm(found.end(), f"{name}{joint} ")
    told = _MONTH_BEFORE.search(place.before) or _MONTH_AFTER.match(place.text, found.end())
    if not told or found[1] + found[2] == "May" or len(found[2]) > 1:
        return None
    goes_on = re.match(r"\s[a-z0-9(&–-]|[,;:)–-]", place.text[found.end() : found.end() + 2])
    return ReadForm(found.end(), name + ("" if goes_on or not found[3] else "."))


def offset(place: Place, language: Language) -> ReadForm | None:
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


def weekdays(place: Place, language: Language) -> ReadForm | None:
    if (found := place.match(_WEEK)) and place.near(_OF_HOURS):
        return ReadForm(found.end(), language.ranged("Monday", _WEEK_ENDS[found[1]]))
    found = place.match(_WEEKDAYS)
    if not found:
        return None
    return ReadForm(found.end(), language.ranged(tables.WEEKDAYS[found[1]], tables.WEEKDAYS[found[2]]))


def _short_date(place: Place, language: Language) -> ReadForm | None:
    found = place.match(_SHORT_DATE)
    if not found:
        before = place.word_before
        told = before in tables.BEFORE_DATE or before in _DATED_BEFORE or place.near(_SHORT_DATE)
        found = place.match(_EARLY_DATE) if told else None
    if not found:
        return None
    if int(found[2]) <= 12 and is_british(place):
        return ReadForm(found.end(), f"{_near_pounds(found, language)} {_short_year(found[3], language)}")
    month, day = tables.MONTH_NAMES[int(found[1]) - 1], language.ordinal(int(found[2])).replace("-", " ")
    return ReadForm(found.end(), f"{month} {day} {_short_year(found[3], language)}")


def _short_year(digits: str, language: Language) -> str:
    return f"zero {language.cardinal(digits[1])}" if digits[0] == "0" else language.cardinal(digits)


DIGITS = (_short_half, _race, short_year, _hours, _due_range, _due_date, _era, _quarter, _short_date)
"""The readers that are tried where a digit stands."""
