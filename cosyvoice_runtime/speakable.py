"""The part of a text that can be spoken at all, as the front and the server both have to know."""

from __future__ import annotations

import re
import unicodedata

_INVISIBLE = re.compile(
    "[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe0e\ufe0f\ufeff\u20e3]"
)


_COLOUR = r"\x1b\[[0-?]{0,32}[ -/]{0,4}"
CONTROLS = re.compile(rf"{_COLOUR}[@-~]|[\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
"""Finds a terminal's sequence for colours and the like, and any other control character."""
BEGUN_CONTROL = re.compile(rf"(?:\x1b|{_COLOUR})\Z")
"""Finds such a sequence at the end of a text that may go on."""
LINE_ENDS = {ord(character): "\n" for character in "\x0b\x0c\x85"}
"""Characters that end a line or a page, as one that everybody knows."""


def without_controls(text: str) -> str:
    """The text without control characters, but for tabs and ends of lines."""
    if text.isprintable():
        return text
    return CONTROLS.sub("", text).translate(LINE_ENDS)


def visible(text: str) -> str:
    """The text without characters that show nothing: controls, soft hyphens, spaces of no width, marks of
    direction.

    Joiners stay, which letters of some scripts need. Letters and the marks on them are one character, as in
    special tokens.
    """
    if text.isascii() and text.isprintable():
        return text
    return unicodedata.normalize("NFC", _INVISIBLE.sub("", without_controls(text)))


def is_speakable(text: str) -> bool:
    """Whether anything but punctuation, symbols and whitespace is there."""
    return any(unicodedata.category(character)[0] not in "PSZC" for character in text)
