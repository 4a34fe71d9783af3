"""The beginning of a line in Markdown: a heading's signs, an item's mark, a quote, a rule, a fence, a row."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

_LOOK = 96
"""Characters of a line by which its beginning is told."""


class Block(Enum):
    """Kinds of beginnings of lines."""

    TEXT = "text"
    HEADING = "heading"
    BULLET = "bullet"
    NUMBER = "number"
    QUOTE = "quote"
    RULE = "rule"
    FENCE = "fence"
    ROW = "row"


class Beginning(NamedTuple):
    """A line's beginning.

    Attributes:
        end: position after it.
        number: of an item, or the sign of a fence.
    """

    block: Block
    end: int
    number: str = ""


_RULE = re.compile(r"(?:[-*_=~─━═—–+][ \t]*)+(?=[\r\n]|\Z)")
_SEPARATORS = re.compile(r":?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*(?=[\r\n]|\Z)")
_HEADING = re.compile(r"#{1,6}[ \t]+(?=\S)")
_QUOTE = re.compile(r">(?!=)")
_BULLET = re.compile(r"[-*—–·●○◦▪▫■□►▶‣•✓✔][ \t]+(?=\S)|\+[ \t]+(?=[^\W\d])|[•‣●▪](?=\S)")
_BOX = re.compile(r"\[[ xX]\][ \t]+")
_NUMBER = re.compile(r"([0-9]{1,3})[.)](?:[ \t]+(?=\S)|(?=[\u3400-\u9fff「“《*]))")
_FENCE = re.compile(r"(`{3,}|~{3,})[^`\r\n]*(?=[\r\n]|\Z)")
_DEFINITION = re.compile(r"\[[^\]\r\n]{1,60}\]:[ \t]+<?https?:[^\r\n]*(?=[\r\n]|\Z)")
_ABSOLUTE = re.compile(r"\|[^|\s][^|\r\n]{0,12}\|\s?[=<>≤≥≈]")
"""An absolute value, which begins no row: ``|v| = 5``."""
_ABSOLUTE_BEGUN = re.compile(r"\|(?:[^|\s][^|\r\n]{0,12}(?:\|\s?)?)?\Z")
_UNDECIDED = re.compile(
    r"[-:| \t]*\Z|[-*_=~─━═—–+ \t]*\Z|#{1,6}[ \t]*\Z|>\Z|[-*—–·●○◦▪▫■□►▶‣•✓✔+][ \t]*\Z"
    r"|[0-9]{1,3}(?:[.)][ \t]*)?\Z|(?:```|~~~)[^`\r\n]*\Z|`{1,2}\Z"
    r"|\[[^\]\r\n]{0,60}(?:\][ \t]*|\]:[ \t]*(?:<?h[^\r\n]*)?)?\Z"
)
_ORDINALS_BEFORE = """
    Januar Februar März April Mai Juni Juli August September Oktober November Dezember FC Bundesliga Liga
    Weltkrieg Advent Platz Stock Klasse Halbzeit Kapitel Jahrhundert
"""
_COUNTED = frozenset(_ORDINALS_BEFORE.lower().split())
"""Words before which a number with a dot is an ordinal in German, not an item of a list."""
_LABELS = frozenset({"tag", "woche", "schritt", "runde", "spieltag", "etage", "akt", "dosis", "halbzeit"})
"""Words of which the same is true where a colon follows."""
_WORD = re.compile(r"[^\W\d_]*")


def beginning(text: str, start: int, complete: bool, expected: int | None) -> Beginning | None:
    """The beginning of the line that starts here, after its spaces; None where more of it must come.

    Args:
        complete: nothing follows the text.
        expected: number of the next item of a list; others than this and 1 begin no item;
            None where all do.
    """
    line = text[start : start + _LOOK]
    ends = complete or len(line) == _LOOK or bool(re.search(r"[\r\n]", line))
    if line.startswith("|") and not _ABSOLUTE.match(line):
        return Beginning(Block.ROW, start) if ends or not _ABSOLUTE_BEGUN.match(line) else None
    if not ends and _UNDECIDED.match(line):
        return None
    for pattern, block in (
        (_FENCE, Block.FENCE),
        (_RULE, Block.RULE),
        (_SEPARATORS, Block.RULE),
        (_DEFINITION, Block.RULE),
    ):
        if found := pattern.match(text, start):
            return Beginning(block, found.end(), found[1] if block is Block.FENCE else "")
    for pattern, block in ((_HEADING, Block.HEADING), (_QUOTE, Block.QUOTE), (_BULLET, Block.BULLET)):
        if found := pattern.match(text, start):
            return Beginning(block, found.end())
    if found := _BOX.match(text, start):
        return Beginning(Block.BULLET, found.end())
    found = _NUMBER.match(text, start)
    if found and (expected is None or int(found[1]) in (0, 1, expected)):
        return _item(text, found, ends)
    return Beginning(Block.TEXT, start)


def _item(text: str, found: re.Match[str], ends: bool) -> Beginning | None:
    word = _WORD.match(text, found.end())
    assert word is not None
    if (
        not ends
        and word.end() == len(text)
        and any(each.startswith(word[0].lower()) for each in (*_COUNTED, *_LABELS))
    ):
        return None
    if word[0].lower() in _COUNTED or (
        word[0].lower() in _LABELS and text[word.end() : word.end() + 1] == ":"
    ):
        return Beginning(Block.TEXT, found.start())
    return Beginning(Block.NUMBER, found.end(), found[1])


_ROWS = re.compile(r"(?:[ \t]*\|[^\r\n]*(?:\r?\n|\Z))+")
_SEPARATOR = re.compile(r"[\s|:-]+")


def end_of_rows(text: str, start: int, complete: bool) -> int | None:
    """Where the lines end that begin with ``|``; None where another may follow."""
    found = _ROWS.match(text, start)
    end = found.end() if found else start
    return None if not complete and not text[end:].strip(" \t\r") else end


def cells(row: str) -> list[str]:
    """Cells of a row of no table; none where it has nothing but signs."""
    return [] if _SEPARATOR.fullmatch(row) else [cell.strip() for cell in row.strip().strip("|").split("|")]
