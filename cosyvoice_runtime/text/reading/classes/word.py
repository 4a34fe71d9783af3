"""Words with digits in them, abbreviations and Roman numbers: ``GPT-4o``, ``x86_64``, ``Chapter IV``."""

from __future__ import annotations

import re
from functools import cache

from cosyvoice_runtime.text.reading.languages.language import Language, alternatives
from cosyvoice_runtime.text.reading.languages.numeral import value_of_roman
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_GLUED = re.compile(
    r"(?<![A-Za-z0-9_])(?=[A-Za-z0-9_+-]{0,64}[0-9])(?=[A-Za-z0-9_+-]{0,64}[A-Za-z])[A-Za-z0-9]+(?:[_][A-Za-z0-9]+)*(?![A-Za-z0-9_]|\.[0-9])",
    re.ASCII,
)
_AND = re.compile(r"(?<=[^\W_])&(?=[^\W_])|(?<=[^\s&]\s)&(?=\s[^\s&])")
_STROKE = re.compile(r"(?<=[A-Za-z])/(?=[0-9])")
_AMOUNT = re.compile(r"(?<![A-Za-z])[0-9]\s?[A-Za-z°]{1,12}\Z")
"""A number and its unit before the stroke, as in ``16 cores/32 threads``."""
_PIECES = re.compile(r"[A-Za-z]+|[0-9]+")
_ROMAN = re.compile(r"(?=[IVXLC])(?:X[CL]|L?X{0,3})(?:I[XV]|V?I{0,3})(?![A-Za-z0-9'’]|\.[A-Za-z])")
_ABBREVIATION = re.compile(r"(?<![A-Za-z.])([A-Z][a-z]{1,4}|[Nn]o|vs|approx|etc)\.(?=\s*(\S?))")


def read(place: Place) -> ReadForm | None:
    """A word that is not read as it is written."""
    if place.text[place.start] == "&":
        found = place.match(_AND) if "&" in place.language.signs else None
        return ReadForm(found.end(), place.language.signs["&"].lower()) if found else None
    if place.text[place.start] == "/" and place.match(_STROKE):
        language = place.language
        return ReadForm(
            place.start + 1, f"{language.pause if _AMOUNT.search(place.before) else ''}{language.space}"
        )
    return _glued(place) or _abbreviation(place) or _roman(place)


def _glued(place: Place) -> ReadForm | None:
    """Letters as they are, digits between them as numbers, or one by one in serial numbers."""
    language = place.language
    found = place.match(_GLUED)
    if not found or not language.space:
        return None
    pieces = _PIECES.findall(found[0])
    digits = [piece for piece in pieces if piece.isdecimal()]
    serial = any(len(piece) > 4 or piece.startswith("0") for piece in digits) or (
        len(pieces) > 3 and any(len(piece) > 2 for piece in digits)
    )
    words = []
    for piece in pieces:
        if not piece.isdecimal():
            words.append(piece)
        elif serial and len(piece) > 1:
            words.append(language.digits(piece))
        else:
            words.append(language.name_number(piece))
    return ReadForm(found.end(), language.space.join(words))


def _abbreviation(place: Place) -> ReadForm | None:
    language = place.language
    listed = place.match(_listed(language)) if language.abbreviations else None
    if listed:
        rest = place.text[listed.end() :]
        ends = listed[0].endswith(".") and (not rest.strip() or rest.startswith("\n"))
        return ReadForm(listed.end(), language.abbreviations[listed[0]] + ("." if ends else ""))
    found = place.match(_ABBREVIATION)
    if not found:
        return None
    words = place.language.abbreviation(found[1], found[2])
    return None if words is None else ReadForm(found.end(), words)


@cache
def _listed(language: Language) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.]){alternatives(language.abbreviations)}(?!\w)")


def _roman(place: Place) -> ReadForm | None:
    found = place.match(_ROMAN)
    if not found or not found[0]:
        return None
    words = place.language.roman(place.word_before, value_of_roman(found[0]))
    return None if words is None else ReadForm(found.end(), words)


def roman_value(written: str) -> int:
    """The value of a Roman number of capitals up to LXXXIX; 0 where it is none."""
    return value_of_roman(written) if written and _ROMAN.fullmatch(written) else 0
