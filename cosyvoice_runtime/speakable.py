"""The part of a text that can be spoken at all, as the front and the server both have to know."""

from __future__ import annotations

import re
import unicodedata

_INVISIBLE = re.compile(
    "[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe0e\ufe0f\ufeff\u20e3]"
)


def visible(text: str) -> str:
    """The text without characters that show nothing: soft hyphens, spaces of no width, marks of direction.

    Joiners stay, which letters of some scripts need. Letters and the marks on them are one character, as in
    special tokens.
    """
    return unicodedata.normalize("NFC", _INVISIBLE.sub("", text))


def is_speakable(text: str) -> bool:
    """Whether anything but punctuation, symbols and whitespace is there."""
    return any(unicodedata.category(character)[0] not in "PSZC" for character in text)
