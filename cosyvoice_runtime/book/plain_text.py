"""Chapters and paragraphs of a book in plain text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from cosyvoice_runtime.book.chapters import Chapter, ChapterList

_ONES = "one|two|three|four|five|six|seven|eight|nine"
_WORDS = f"{_ONES}|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|\
(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:[- ](?:{_ONES}))?"
_NUMBERED = re.compile(
    rf"(?:chapter|book|part|volume|section)\s+(?:the\s+)?(?:\d+|[ivxlc]+|{_WORDS}|first|last)\b(?!\s+(?-i:[a-z]))"
    r"|(?:prologue|epilogue|preface|foreword|introduction|afterword|interlude)\W*\Z",
    re.IGNORECASE,
)
"""Matches the beginning of a heading in English, behind whose number no word in small letters goes on."""
_NUMBERED_CHINESE = re.compile(
    r"第\s*[0-9０-９零〇一二三四五六七八九十百千两]+\s*[章回节卷部集篇幕]|(?:序章|序言|楔子|引子|前言|尾声|后记|終章|终章)\Z"
)
"""Matches the beginning of a heading in Chinese or Japanese."""
_HASHES = re.compile(r"#{1,2}\s+(\S.*?)\s*#*")
LONGEST_HEADING = 120
"""Characters of a heading, of up to :data:`HEADING_LINES` lines; a longer block is a paragraph."""
HEADING_LINES = 3
LONGEST_CHINESE = 40
LONGEST_CAPITALS = 60
LEAST_CAPITALS = 4
"""Letters of a heading in capitals."""

Titled = Callable[[Sequence[str]], str]
"""Gives the title that a block's lines are, or nothing where they are a paragraph."""


def chapters_of_text(text: str) -> list[Chapter]:
    """Chapters of a plain text. What stands before the first heading has no title.

    Headings are of one kind in a whole text: the first of these of which there is one.

    - ``# Title`` or ``## Title``, as in Markdown;
    - a block of up to three lines that begins ``Chapter 1``, ``PART TWO``, ``Book IV`` and the like, or is
      ``Prologue``, ``Epilogue`` and the like; a line that begins ``第一章`` and the like;
    - a line in capitals, which doesn't end with a mark.
    """
    blocks = blocks_of(text)
    titled = next((each for each in (_hashes, _numbered, _capitals) if any(map(each, blocks))), _none)
    chapters = ChapterList()
    for block in blocks:
        if title := titled(block):
            chapters.begin(title)
        chapters.add(title or "\n".join(block))
    return chapters.all()


def blocks_of(text: str) -> list[list[str]]:
    """Lines of each paragraph.

    Blank lines divide paragraphs; so do a tab or a wide space at a line's beginning, and a Chinese heading.
    In a text without blank lines every line is a paragraph.
    """
    lines = [line.rstrip() for line in text.splitlines()]
    each_alone = all(lines[: len(lines) - 1]) if lines else True
    blocks: list[list[str]] = []
    divided = True
    for line in lines:
        heading = _chinese([line.strip()]) or _hashes([line.strip()])
        if divided or each_alone or heading or line[:1] in ("\t", "\u3000"):
            blocks.append([])
        divided = not line or bool(heading)
        blocks[-1].append(line.strip())
    return [[line for line in block if line] for block in blocks if any(block)]


def _hashes(lines: Sequence[str]) -> str:
    found = _HASHES.fullmatch(lines[0]) if len(lines) == 1 else None
    return found[1] if found and len(found[1]) <= LONGEST_HEADING else ""


def _numbered(lines: Sequence[str]) -> str:
    title = " ".join(lines)
    fits = len(lines) <= HEADING_LINES and len(title) <= LONGEST_HEADING
    return _chinese(lines) or (title if fits and _NUMBERED.match(title) else "")


def _chinese(lines: Sequence[str]) -> str:
    fits = len(lines) == 1 and len(lines[0]) <= LONGEST_CHINESE and not lines[0].endswith(("。", "，"))
    return lines[0] if fits and _NUMBERED_CHINESE.match(lines[0]) else ""


def _capitals(lines: Sequence[str]) -> str:
    [line, *others] = lines
    fits = not others and len(line) <= LONGEST_CAPITALS and line[-1].isalnum() and line.isupper()
    return line if fits and sum(map(str.isalpha, line)) >= LEAST_CAPITALS else ""


def _none(lines: Sequence[str]) -> str:  # noqa: ARG001
    return ""
