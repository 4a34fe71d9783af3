"""Times of day: ``9:30PM``, ``9 a.m. - 5 p.m.``, ``15:30 UTC``, ``21:51:31``."""

from __future__ import annotations

import re
from functools import cache

from cosyvoice_runtime.text.reading.classes.money import RANGE
from cosyvoice_runtime.text.reading.languages.language import Clock, Language
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_ZONES = "UTC|GMT|EST|EDT|CST|CDT|MST|MDT|PST|PDT|CET|CEST|BST|IST|JST"

_AFTER_HALF = (
    r"\s+[a-z,;)–-]|[-–!?,;)]"
    rf"|\s?(?:{_ZONES}|[ECMP]T|Eastern|Pacific|Central|Mountain|[A-Z][a-z]{{2,5}}day)\b"
)
"""After the last dot of ``p.m.``, what shows that the sentence goes on."""


def read(place: Place) -> ReadForm | None:
    """A time of day, or a range of times."""
    first = _single(place)
    if first is None:
        return _range_of_hours(place)
    clock, end = first
    language = place.language
    between = _BETWEEN.match(place.text, end)
    second = _single(place.apart(between.end())) if between else None
    if between and second is not None:
        bare = bool(second[0].half) and not (clock.half or clock.minute or clock.second)
        low = language.cardinal(str(clock.hour)) if bare else language.clock(clock)
        words = language.spanned(low, language.clock(second[0]))
        return ReadForm(between.end() + second[1], words)
    return ReadForm(end, language.clock(clock))


_TO_MINUTES = re.compile(
    rf"(?a)(?<![\w.,:/-])(?P<from>0?[1-9]|1[0-2]){RANGE}(?P<hour>[01]?[0-9]|2[0-4]):(?P<minute>[0-5][0-9])(?![\w:])"
)
_BETWEEN = re.compile(RANGE)


def _single(place: Place) -> tuple[Clock, int] | None:
    for pattern in _patterns(place.language):
        if found := place.match(pattern):
            return _clock(found, place.language), found.end()
    return None


def _range_of_hours(place: Place) -> ReadForm | None:
    """``9-5pm``: the half of the day stands once."""
    if not place.language.halves:
        return None
    found = place.match(_hours(place.language)) or place.match(_TO_MINUTES)
    if not found:
        return None
    language = place.language
    second = _clock(found, language)
    return ReadForm(found.end(), language.spanned(language.cardinal(found["from"]), language.clock(second)))


def _clock(found: re.Match[str], language: Language) -> Clock:
    parts = found.groupdict()
    half = language.halves[re.sub(r"[\s.]", "", parts["half"]).lower()] if parts.get("half") else ""
    return Clock(
        int(parts["hour"]),
        int(parts.get("minute") or 0),
        int(parts["second"]) if parts.get("second") else None,
        half,
        re.sub(r"[^A-Za-z]", "", parts.get("zone") or "").upper(),
    )


@cache
def _patterns(language: Language) -> tuple[re.Pattern[str], ...]:
    half = _half(language)
    zone = rf"(?:\s?(?P<zone>{_ZONES}|e\.s\.t|p\.s\.t)(?![A-Za-z]))?"
    minutes = (
        r"(?P<hour>[01]?[0-9]|2[0-4])[:：](?P<minute>[0-5][0-9])(?:[:：](?P<second>[0-5][0-9]))?"
        r"(?![0-9]|[:：][0-9])"
    )
    start = r"(?a)(?:(?<![\w.,:/-])|(?<=:[0-9]{2}/)|(?<=[A-Z]/)|(?<=[A-Z]\.[A-Z]\.))(?<![0-9]：)"
    found = [rf"{start}{minutes}(?:{half})?{zone}"] if half else [rf"{start}{minutes}(?:h\b)?{zone}"]
    if half:
        found.append(rf"{start}(?P<hour>0?[1-9]|1[0-2])(?:[.:](?P<minute>[0-5][0-9]))?{half}{zone}")
        found.append(rf"{start}{minutes}h\b")
    own = [rf"{start}{pattern}" for pattern in language.clock_patterns]
    return tuple(re.compile(pattern) for pattern in (*own, *found))


@cache
def _hours(language: Language) -> re.Pattern[str]:
    return re.compile(
        rf"(?a)(?<![\w.,:/-])(?P<from>0?[1-9]|1[0-2]){RANGE}(?P<hour>0?[1-9]|1[0-2])(?:[:](?P<minute>[0-5][0-9]))?{_half(language)}"
    )


def _half(language: Language) -> str:
    """Source for ``am`` and ``p.m.``; the last dot also ends a sentence unless a small letter follows."""
    if not language.halves:
        return ""
    letters = "|".join(rf"{half[0]}\.?{half[1]}" for half in language.halves)
    return rf"\s?(?P<half>(?i:{letters}))(?:(?<=\.[mM])\.(?={_AFTER_HALF})|(?![A-Za-z]))"
