"""Dates: ``May 5, 2023``, ``17.05.2024``, ``2024-05-17``, ``Dec 31 - Jan 2``, ``May 5-7``."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from cosyvoice_runtime.text.reading.classes.money import RANGE
from cosyvoice_runtime.text.reading.languages.language import Date, Language, alternatives
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_ISO = re.compile(
    r"(?a)(?<![\w.-])(?P<year>[12][0-9]{3})(?P<mark>[-/.])(?P<month>[0-9]{1,2})(?P=mark)(?P<day>[0-9]{1,2})(?![\w]|[-/.][0-9])"
)
_NUMERIC = re.compile(
    r"(?a)(?<![\w.,/-])(?P<first>[0-9]{1,2})(?P<mark>[-/.])(?P<second>[0-9]{1,2})(?P=mark)(?P<year>(?:1[5-9]|20)[0-9]{2})(?![\w]|[-/.][0-9])"
)


def read(place: Place) -> ReadForm | None:
    """A date, or a range of dates."""
    first = _single(place)
    if first is None:
        return place.language.decades(place) or _days(place)
    date, end = replace(first[0], before=place.language.governor(place)), first[1]
    language = place.language
    between = _BETWEEN.match(place.text, end)
    if between:
        second = _single(place.apart(between.end()))
        if second is not None:
            last = replace(second[0], before=language.to)
            words = language.spanned(language.date(date), language.date(last))
            return ReadForm(between.end() + second[1], words)
        days = _LAST_DAY.match(place.text, between.end())
        if days and date.day and date.year is None and not date.day_first and int(days[1]) > date.day:
            words = language.spanned(language.date(date), language.ordinal_day(int(days[1])))
            year = _YEAR_AFTER.match(place.text, days.end())
            if year is None:
                return ReadForm(days.end(), words)
            return ReadForm(
                year.end(), f"{words}{language.pause}{language.space}{language.year(int(year[1]))}"
            )
    return ReadForm(end, language.date(date))


def _days(place: Place) -> ReadForm | None:
    """``5-7 May``."""
    found = place.match(_first_day(place.language))
    last = _single(place.apart(found.end())) if found else None
    if not found or last is None or not last[0].day or not last[0].day_first or not last[0].name:
        return None
    first = place.language.first_day(int(found[1]))
    words = place.language.date(replace(last[0], before=place.language.to))
    return ReadForm(found.end() + last[1], place.language.spanned(first, words))


_BETWEEN = re.compile(RANGE)
_YEAR_AFTER = re.compile(r"(?a),? ([12][0-9]{3})(?![\w-]|[.,][0-9])")
_LAST_DAY = re.compile(r"(?a)([0-9]{1,2})(?:st|nd|rd|th)?(?![\w]|[.:,][0-9])")


def _single(place: Place) -> tuple[Date, int] | None:
    language = place.language
    if found := place.match(_ISO):
        return _checked(
            Date(int(found["month"]), int(found["day"]), int(found["year"]), day_first=True), found.end()
        )
    if found := place.match(_NUMERIC):
        first, second = int(found["first"]), int(found["second"])
        month_first = found["mark"] == "/" and language.puts_month_first(place)
        month, day = (first, second) if month_first else (second, first)
        if month > 12:
            month, day, month_first = day, month, not month_first
        return _checked(Date(month, day, int(found["year"]), day_first=not month_first), found.end())
    found = place.match(_by_weekday(language)) if language.weekdays else None
    if found:
        first, second = int(found["first"]), int(found["second"])
        month, day = (first, second) if language.puts_month_first(place) and first <= 12 else (second, first)
        dated = _checked(Date(month, day, day_first=not language.month_first), found.end())
        return None if dated is None else (replace(dated[0], weekday=found["weekday"]), dated[1])
    for pattern in _patterns(language):
        if found := place.match(pattern):
            parts = found.groupdict()
            name = parts["month"].rstrip(".")
            date = Date(
                int(name) if name.isdecimal() else language.months[name.lower()],
                int(parts["day"]) if parts.get("day") else None,
                int(parts["year"]) if parts.get("year") else None,
                day_first=pattern.pattern.find("?P<day>") < pattern.pattern.find("?P<month>"),
                name=name if name.lower() in language.month_names else "",
                comma="," in found[0],
            )
            # The dot after a full name ends a sentence.
            ends = bool(date.name) and found.end() == found.end("month") and found[0].endswith(".")
            return _checked(date, found.end() - ends)
    return None


def _checked(date: Date, end: int) -> tuple[Date, int] | None:
    valid = 1 <= date.month <= 12 and (date.day is None or 1 <= date.day <= 31)
    return (date, end) if valid else None


@cache
def _first_day(language: Language) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.,:/-])([0-9]{{1,2}}){language.after_day}{RANGE}")


@cache
def _by_weekday(language: Language) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<weekday>(?i:\b{alternatives(language.weekdays)}\b))\.?,? "
        r"(?P<first>[0-9]{1,2})/(?P<second>[0-9]{1,2})(?![\w/]|[.,][0-9])"
    )


@cache
def _patterns(language: Language) -> tuple[re.Pattern[str], ...]:
    names = {
        "month": rf"(?P<month>{language.month_pattern}\b\.?)",
        "year": r"(?P<year>[12][0-9]{3})(?![\w-]|[.,][0-9])",
        "day": r"(?P<day>[0-9]{1,2})",
        "number": r"(?P<month>0?[1-9]|1[0-2])",
        "short": r"(?P<year>[0-9]{4}|[0-9]{2})(?![\w]|[.,:-][0-9])",
    }
    return tuple(re.compile(pattern.format_map(names), re.IGNORECASE) for pattern in language.date_patterns)
