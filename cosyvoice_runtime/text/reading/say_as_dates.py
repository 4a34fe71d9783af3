"""Dates and times whose order is given: ``<say-as interpret-as="date" format="dmy">3/4/2024</say-as>``."""

from __future__ import annotations

import calendar
import re

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.reading import chinese
from cosyvoice_runtime.text.reading.classes import clock, duration
from cosyvoice_runtime.text.reading.classes import date as dates
from cosyvoice_runtime.text.reading.languages.language import Clock, Date, Language
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.reader import FormReader
from cosyvoice_runtime.text.reading.whole import said_whole

DATES = ("mdy", "dmy", "ymd", "ydm", "md", "dm", "my", "ym", "d", "m", "y")
TIMES = ("hms12", "hms24")
_PART = re.compile(r"([0-9]{1,8})(?![0-9])|(?<![0-9])[^\W\d_]+")
_WIDTHS = {"y": 4, "m": 2, "d": 2}
_YEAR_SIGNS = {"zh": "年", "ja": "年", "ko": "년"}
_DAY_SIGNS = {"zh": "日", "ja": "日", "ko": "일"}
_WRITTEN_DATE = re.compile(
    r"(?:([0-9]{4})\s?[年년]\s?)?([0-9]{1,2})\s?[月월]\s?(?:([0-9]{1,2})\s?[日号號일])?"
)
_TIME = re.compile(
    r"([0-9]{1,2})(?:[:.：h]?([0-9]{2})(?:[:.：]?([0-9]{2}))?)?\s?(?:([AaPp])\.?[Mm]\.?)?(?:\s?(?:Uhr|h))?"
)
_WRITTEN_TIMES = {
    tag: re.compile(
        rf"(?:[^\W\d]{{2,4}}\s?)?[0-9]{{1,2}}\s?[{hour}](?:\s?[0-9]{{1,2}}\s?[{minute}]|{half})?(?:\s?[0-9]{{1,2}}\s?{second})?"
    )
    for tag, hour, minute, half, second in (
        ("zh", "点點时時", "分", "半", "秒"),
        ("ja", "時", "分", "半", "秒"),
        ("ko", "시", "분", " ?반", "초"),
    )
}
_LENGTH = re.compile(
    r"(?:(?P<h>[0-9]{1,3})\s?h(?:rs?)?\s?)?(?:(?P<min>[0-9]{1,3})\s?m(?:ins?)?\s?)?(?:(?P<s>[0-9]{1,3})\s?s(?:ecs?)?)?",
    re.IGNORECASE,
)


def date(words: str, form: str, language: Language) -> str:
    """A date in words.

    Args:
        form: the order of its parts by their letters, which may be repeated or have marks between them
            (``dmy``, ``yyyy-mm-dd``); empty for a date as the language writes it.

    Raises:
        InvalidInput: the form is unknown, or the words are no date of it.
    """
    order = re.sub(r"(.)\1+", r"\1", re.sub("[^a-z]", "", form.lower()))
    if not order:
        return _as_written(words, language)
    if order not in DATES:
        raise InvalidInput("target_text", form, f"format of a date: one of {', '.join(DATES)}")
    parts = _in_order(words, order, language)
    if parts is None or not _exists(parts):
        raise InvalidInput("target_text", words, f"interpret-as=date: a date in the order {order}")
    return _words(parts, order, language)


def _as_written(words: str, language: Language) -> str:
    if found := _WRITTEN_DATE.fullmatch(words):
        year, month, day = (int(part) if part else 0 for part in found.groups())
        parts = {"y": year, "m": month, "d": day}
        if _exists({letter: value for letter, value in parts.items() if value or letter == "m"}):
            return language.date(Date(month, day or None, year or None))
    said = said_whole(words, language, chinese.date.read if language.tag == "zh" else dates.read)
    if said is None:
        raise InvalidInput(
            "target_text",
            words,
            "interpret-as=date: a date such as 2024-05-17; format says the order of another",
        )
    return said


def _in_order(words: str, order: str, language: Language) -> dict[str, int] | None:
    """The parts of a date by their letters; None where there are more, fewer or others."""
    found: list[int] = []
    for part in _PART.finditer(words):
        if part[1]:
            found.append(int(part[1]))
        elif month := language.months.get(part[0].lower()):
            found.append(month)
        elif len(part[0]) > 3:
            return None
    width = sum(_WIDTHS[letter] for letter in order)
    if words.isdecimal() and len(order) > 1 and len(words) == width:
        found, at = [], 0
        for letter in order:
            found.append(int(words[at : at + _WIDTHS[letter]]))
            at += _WIDTHS[letter]
    if len(found) != len(order):
        return None
    parts = dict(zip(order, found, strict=True))
    if "y" in parts and len(order) > 1 and parts["y"] < 100:
        parts["y"] += 2000 if parts["y"] < 70 else 1900
    return parts


def _exists(parts: dict[str, int]) -> bool:
    """Whether there is such a day; the year may be unknown."""
    month, day, year = parts.get("m", 1), parts.get("d", 1), parts.get("y", 2000)
    return 1 <= month <= 12 and 1 <= year <= 9999 and 1 <= day <= calendar.monthrange(year, month)[1]


def _words(parts: dict[str, int], order: str, language: Language) -> str:
    if order == "y":
        return f"{language.year(parts['y'])}{_YEAR_SIGNS.get(language.tag, '')}"
    if order == "d":
        sign = _DAY_SIGNS.get(language.tag)
        return f"{language.cardinal(str(parts['d']))}{sign}" if sign else language.ordinal_day(parts["d"])
    day_first = "d" in order and order.index("d") < order.index("m")
    return language.date(Date(parts["m"], parts.get("d"), parts.get("y"), day_first or order == "ymd"))


def time(words: str, form: str, language: Language) -> str:
    """A time of day or a length of time in words.

    Args:
        form: ``hms12`` for an hour up to 12, ``hms24`` for one up to 24; empty for either, or for a length.

    Raises:
        InvalidInput: the form is unknown, or the words are no time of it.
    """
    form = form.lower()
    if form and form not in TIMES:
        raise InvalidInput("target_text", form, f"format of a time: one of {', '.join(TIMES)}")
    found = _TIME.fullmatch(words)
    clocked = _clock(found, form, language) if found else None
    said = clocked if form else _time_as_written(words, language) or clocked
    if said is None:
        raise InvalidInput("target_text", words, f"interpret-as=time: {_WANTED[form]}")
    return said


_WANTED = {
    "": "a time such as 14:30 or 2:30 pm, or a length of time such as 2h30m",
    "hms12": "a time such as 2:30 pm, its hour from 1 to 12",
    "hms24": "a time such as 14:30, its hour from 0 to 24",
}


def _time_as_written(words: str, language: Language) -> str | None:
    """A time as the language writes it, or a length of time."""
    if language.tag == "zh":
        said = said_whole(words, language, chinese.clock.read)
    else:
        said = length(words, language) or said_whole(words, language, clock.read)
    written = _WRITTEN_TIMES.get(language.tag)
    return FormReader(language)(words) if not said and written and written.fullmatch(words) else said


def length(words: str, language: Language) -> str | None:
    """Hours, minutes and seconds by their letters (``2h30m``); None where the words are none.

    Hours alone, which are a time in some languages, are none.
    """
    found = _LENGTH.fullmatch(words)
    if not found or not (found["min"] or found["s"]):
        return None
    said = said_whole(words, language, chinese.clock.read if language.tag == "zh" else duration.read)
    if said is not None:
        return said
    parts = {language.units[sign]: number for sign, number in found.groupdict().items() if number}
    if language.tag == "ko":  # Its hours are counted by native numbers, which the text shows.
        return FormReader(language)(" ".join(f"{number}{unit.one}" for unit, number in parts.items()))
    return language.space.join(language.counted(Numeral(number), unit) for unit, number in parts.items())


def _clock(found: re.Match[str], form: str, language: Language) -> str | None:
    """A time of day; None where there is none such, or it is not of the form."""
    hour, minute = int(found[1]), int(found[2] or 0)
    second = int(found[3]) if found[3] else None
    half = f"{found[4].lower()}m" if found[4] else ""
    twelve = form == "hms12" or half
    if not (1 if twelve else 0) <= hour <= (12 if twelve else 24) or minute > 59 or (second or 0) > 59:
        return None
    if half and language.tag == "zh":
        return said_whole(found[0], language, chinese.clock.read)
    if half and half not in language.halves:
        hour, half = hour % 12 + (12 if half == "pm" else 0), ""
    return language.clock(Clock(hour, minute, second, language.halves.get(half, "")))
