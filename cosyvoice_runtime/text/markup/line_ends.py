"""The mark that stands for a line's end, for an arrow or for another break between two phrases."""

from __future__ import annotations

import re
from enum import IntEnum

_EAST_ASIAN = re.compile(
    "[、。，：；？！\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]"
)
_ENDS = re.compile("[.,!?;:…。，！？；：、—–～~]\\s*[\"'”’)\\]）】」』》]*\\Z")
_ABBREVIATED = re.compile(r"(?<![^\W\d_])[^\W\d_]{1,3}\.\Z")
"""May be an abbreviation, whose dot ends no sentence."""
_BEGINS = re.compile("[.,!?;:)\\]…。，！？；：、）】」』》]")
_WRAPPED = 50
"""Characters from which on a line of letters may have ended because the page did."""
_WRAPPED_EAST_ASIAN = 30


class Break(IntEnum):
    """Kinds of breaks between two phrases, by their strength."""

    NONE = 0
    """Spaces."""
    DROPPED = 1
    """Something silent stood here."""
    IMAGE = 2
    """The words of an image end, with which a sentence may begin."""
    PAUSE = 3
    LINE = 4
    """The end of a line of prose or verse."""
    PARAGRAPH = 5
    """The end of an item or a row."""
    BLANK = 6
    """An empty line, or the beginning or the end of a heading: a paragraph ends."""


def is_east_asian(text: str) -> bool:
    """Whether Chinese or Japanese characters are there, whose marks are wide and have no spaces."""
    return bool(_EAST_ASIAN.search(text))


def ends_phrase(text: str) -> bool:
    """Whether a mark ends the text, perhaps before closing quotes or brackets."""
    return bool(_ENDS.search(text))


def between(before: str, after: str, kind: Break, spaces: str, length: int) -> str:
    """The marks and spaces between two phrases.

    Args:
        before: the last dozen characters before the break; empty at the start of a text.
        after: the first character after it.
        spaces: that stood there.
        length: characters of the line that ends.
    """
    if kind is Break.NONE:
        return spaces
    if not before or _BEGINS.match(after):
        return ""
    wide = is_east_asian(before) or is_east_asian(after)
    if ends_phrase(before):
        apart = before.endswith(".") and (spaces or _ABBREVIATED.search(before))
        if kind is Break.PARAGRAPH and apart and not wide:
            return "\n\n"
        return (spaces if kind >= Break.LINE else " ") if spaces else ("" if wide else " ")
    if kind is Break.PAUSE and before[-1].isdecimal() and after.isdecimal():
        return "、" if wide else "; "
    mark = _mark(after, kind, bool(spaces), length, wide)
    if not mark:
        return " " if spaces else ""
    if wide:
        return {",": "，", ".": "。"}[mark]
    is_number = kind is Break.PARAGRAPH and before[-1].isdecimal()  # In German, that of the next word.
    return f"{mark}\n" if is_number else f"{mark} "


def _mark(after: str, kind: Break, spaced: bool, length: int, wide: bool) -> str:
    """The mark that the break needs: a full stop, a comma or none."""
    if kind is Break.DROPPED:
        return "," if after.isupper() or (wide and not spaced) else ""
    if kind is Break.IMAGE:
        return "" if after.islower() else ","
    if kind is not Break.LINE:
        return "." if kind is Break.PARAGRAPH else ","
    if wide:
        return "," if length >= _WRAPPED_EAST_ASIAN else "."
    if length >= _WRAPPED:
        return "" if after.islower() else ","
    return "," if after.islower() else "."
