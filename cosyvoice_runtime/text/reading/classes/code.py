"""Numbers that name something, digit by digit: ``flight BA2490``, ``PIN 0042``, ``ISBN 978-...``."""

from __future__ import annotations

import re
from functools import cache

from cosyvoice_runtime.text.reading.classes.telephone import groups
from cosyvoice_runtime.text.reading.languages.language import Language
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_END = r"(?!\w|,[0-9]|\.[0-9])"
_CODE = re.compile(
    r"(?a)(?:#\s?)?(?:(?P<letters>[A-Z]{1,3})[- ]?)?(?P<digits>[0-9](?:[ -]?[0-9]){2,18})(?P<x>-?[Xx])?"
    + _END
)
_MIXED_CODE = re.compile(r"(?P<letters>[a-z]{1,3})(?P<digits>[0-9]{3,12})(?P<x>-?[Xx])?" + _END)
_HEXADECIMAL = re.compile(r"(?a)(?<![\w.,])0x([0-9A-Fa-f]{1,16})(?!\w)")
_LONG = re.compile(r"(?a)(?<![\w.,])(?![0-9]*000000(?![0-9]))[0-9]{10,}" + _END)


def read(place: Place) -> ReadForm | None:
    """Digits after a word that announces a code, a run too long for a number, or a hexadecimal number."""
    language = place.language
    if found := place.match(_HEXADECIMAL):
        pieces = re.findall("[0-9]+|[A-Fa-f]+", found[1])
        spoken = [language.digits(piece) if piece.isdecimal() else piece for piece in pieces]
        return ReadForm(found.end(), language.space.join((language.digits("0"), "x", *spoken)))
    found = place.match(_LONG)
    if found and (len(found[0]) >= language.long_run or found[0].startswith("0")):
        return ReadForm(found.end(), language.telephone_digits(found[0]))
    if not language.before_code:
        return None
    found = place.match(_CODE) or place.match(_MIXED_CODE)
    if not found:
        return None
    named = _named(language)
    if _STATED.search(place.before) and language.is_amount(place, found.end("digits")):
        return None
    if named[0].search(place.before) or (_is_long(found["digits"]) and named[1].search(place.before)):
        words = groups(found["digits"], place) + (f"{language.pause} X" if found["x"] else "")
        return ReadForm(found.end(), f"{found['letters']} {words}" if found["letters"] else words)
    called = _EMERGENCY.match(place.text, place.start)
    if called and (named[2].search(place.before) or _SERVICE.match(place.text, called.end())):
        return ReadForm(called.end(), language.digits(called[0]))
    return None


_STATED = re.compile(r"(?:[a-z] (?:is|was)|:) ?\Z")
"""Before a number that tells how large something is, or what its number is."""
_EMERGENCY = re.compile(
    r"(?a)(?:911|999|112|988|[2-8]11|1(?:10|19|20)(?= for\b| \(|[.,;)]|\Z))"
    r"(?!\w|[.,][0-9])(?! (?:people|of|[a-z]+s)\b)"
)
_SERVICE = re.compile(r" for (?:an? |the )?(?:ambulance|fire|police|medical|emergenc)")


def _is_long(digits: str) -> bool:
    return len(re.sub("[^0-9]", "", digits)) >= 5 and not re.fullmatch("[0-9]+000", digits)


@cache
def _named(language: Language) -> tuple[re.Pattern[str], ...]:
    between = r"(?: (?:number|no\.|code|is)){0,2}:? ?\Z"
    always, mostly, calls = language.before_code
    return tuple(re.compile(rf"(?<![A-Za-z])(?i:{words}){between}") for words in (always, mostly, calls))
