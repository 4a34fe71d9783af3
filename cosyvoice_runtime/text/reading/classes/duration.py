"""Durations: ``4h 35m``, ``3m20s``, ``2 hr, 5 mins, 10 secs``, ``10m ago``, ``1:01:01``."""

from __future__ import annotations

import re
from functools import cache

from cosyvoice_runtime.text.reading.languages.language import Language, alternatives
from cosyvoice_runtime.text.reading.languages.numeral import Numeral
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm


def read(place: Place) -> ReadForm | None:
    """Several amounts of time in a row, or one of minutes that words around it tell from meters."""
    language = place.language
    if not language.time_units:
        return None
    whole, part, single = _patterns(language)
    found = place.match(whole)
    parts = part.findall(found[0]) if found else []
    if found and len({language.time_units[unit] for _, unit in parts}) == len(parts):
        qualifies = language.qualifies(place, found.end())
        units = (language.time_units[unit] for _, unit in parts)
        units = (unit._replace(many=unit.one) if qualifies else unit for unit in units)
        words = [language.counted(Numeral(part[0]), unit) for part, unit in zip(parts, units, strict=True)]
        return ReadForm(found.end(), f"{language.pause}{language.space}".join(words))
    found = place.match(single)
    return (
        ReadForm(found.end(), language.counted(Numeral(found[1]), language.time_units["m"]))
        if found
        else None
    )


@cache
def _patterns(language: Language) -> tuple[re.Pattern[str], ...]:
    unit = alternatives(language.time_units)
    one = rf"[0-9]{{1,4}}\s?{unit}(?![A-Za-z])"
    glued = rf"[0-9]{{1,4}}\s?{unit}(?=[0-9]|[^A-Za-z]|$)"
    return (
        re.compile(rf"(?a)(?<![\w.,]){glued}(?:,?\s?{one}|{glued}){{1,3}}"),
        re.compile(rf"([0-9]{{1,4}})\s?({unit})(?=[0-9]|[^A-Za-z]|$)"),
        re.compile(
            rf"(?a)(?<![\w.,])([0-9]{{1,3}})m(?=\s(?:{'|'.join(language.after_minutes)})\b)"
            if language.after_minutes
            else "(?!)"
        ),
    )
