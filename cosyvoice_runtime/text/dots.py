"""Dots that end no sentence: of abbreviations, initials and ordinal numbers."""

from __future__ import annotations

import re
import unicodedata

# The patterns find the word, its dot and, after one space, the kind of the next character: "a" is a small
# letter, "0" a digit, "^" anything else.
_ALWAYS = r"mr|mrs|ms|dr|prof|st|vs|approx|fig|vol|gov|gen|sen|rev|ph\.d|p|pp|ch|nr"
_ALWAYS_ELSEWHERE = "bzw|ca|evtl|ggf|hr|inkl|sig|sog|sra?|srta|vgl"
_BEFORE_DIGITS = "no|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec"
_BEFORE_NO_CAPITAL = r"jr|sr|inc|ltd|corp|etc|sec|[ap]\.m"
_SMALL_ALPHABETS = "a-zß-ɏа-ѿ"
_ENGLISH = (
    rf"\b(?:{_ALWAYS})\. ."
    rf"|\b(?:{_BEFORE_DIGITS})\. 0"
    rf"|\b(?:{_BEFORE_NO_CAPITAL})\. [a0]"
    r"|\b(?![ap]\.m\.)(?:[a-z]\.)+[a-z]\. ."
    r"|(?<![^\W\d_])(?<!\.)(?-i:[A-HJ-Z])\. ."
)
ENGLISH = re.compile(rf"(?:{_ENGLISH})\Z", re.IGNORECASE)
"""Dots of listed abbreviations, and after single capitals: ``J. K. Rowling``, ``the U.S. economy``.

So a sentence that ends with a capital (``Plan B.``) is spoken in one with the next, which does no harm; a
name cut in two would be heard. "I" is a word, and so is "я" below.
"""

OTHERS = re.compile(
    rf"(?:{_ENGLISH}"
    rf"|\b(?:{_ALWAYS_ELSEWHERE})\. ."
    r"|(?<![^\W\d_])[a-zß-ɏа-ю]\. ."
    r"|(?<![0-9.,:])[0-9]{1,2}\. ."
    rf"|[{_SMALL_ALPHABETS}0-9]\. [a0])\Z",
    re.IGNORECASE,
)
"""English dots, those of ``3. Oktober``, ``z. B.``, ``M. Dupont``, and any before a small letter or a digit.

Not in English: there people write without capitals too, and numbers become words before the text is split.
"""

_REACH = 12
"""Characters before a dot that say what it is."""
_NEXT_WORD = re.compile(r"\s+(\S)")


def inside_sentence(text: str, index: int, pattern: re.Pattern[str]) -> bool:
    """Whether the dot at ``index`` is one of :data:`ENGLISH` or :data:`OTHERS`, by the words around it."""
    following = _NEXT_WORD.match(text, index + 1)
    if not following:
        return False
    before = unicodedata.normalize("NFKC", text[max(0, index - _REACH) : index])
    return bool(pattern.search(f"{before}. {_kind(following[1])}"))


def _kind(character: str) -> str:
    if character.isdecimal():
        return "0"
    return "a" if character.islower() else "^"
