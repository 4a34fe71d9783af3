"""A book's text: its chapters, and the passages that are spoken one after another."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

MOST_CHARACTERS = 1_000
"""Characters of a passage: about a minute of speech, which is the most that an interruption loses."""
DIGITS = 32
"""Hexadecimal digits of a text's hash in a key: half of SHA-256."""
_DOT = r"(?<!\b[A-Z])(?<!\b[A-Z]\w)(?<!\b[A-Z]\w\w)\."
"""Matches a dot, but not behind a short word with a capital, which may be an initial or an abbreviation."""
_SENTENCE_END = re.compile(rf"(?:{_DOT}|[!?…])[\"'”’)\]]*\s+(?![a-z])|[。！？…][”’」』）]*|\n")
"""Finds the ends of sentences."""
_SPACE = re.compile(r"\s+")


class Chapter(NamedTuple):
    """A chapter.

    Attributes:
        title: as players show it.
        paragraphs: all that is read aloud, the heading included.
    """

    title: str
    paragraphs: Sequence[str]


@dataclass(frozen=True)
class Book:
    """A book as it was read from its file.

    Attributes:
        title, author: empty where the file doesn't say.
        chapters: in order.
    """

    title: str
    author: str
    chapters: Sequence[Chapter]


class ChapterList:
    """Chapters while a book is read, paragraph by paragraph; what comes before the first title has none."""

    def __init__(self) -> None:
        self._chapters: list[tuple[str, list[str]]] = [("", [])]

    def begin(self, title: str) -> None:
        """A chapter begins; its title is read aloud where it is added, too."""
        self._chapters.append((title, []))

    def add(self, paragraph: str) -> None:
        self._chapters[-1][1].append(paragraph)

    def all(self) -> list[Chapter]:
        """The chapters that hold something."""
        return [Chapter(title, paragraphs) for title, paragraphs in self._chapters if paragraphs]


class Gap(Enum):
    """Kinds of gaps between a passage and the one before it."""

    NONE = "none"
    """Nothing: both are of one paragraph."""
    PARAGRAPH = "paragraph"
    CHAPTER = "chapter"
    """A chapter begins, or a line of ornaments stood between two scenes."""


class Passage(NamedTuple):
    """A stretch of text that is spoken in one go.

    Attributes:
        chapter: index of its chapter.
        gap: what separates it from the passage before.
    """

    text: str
    chapter: int
    gap: Gap


def passages_of(book: Book, speakable: Callable[[str], bool]) -> list[Passage]:
    """All passages of a book in order.

    Args:
        speakable: tells whether anything of a text can be spoken; a paragraph of which nothing can be is a
            break between two scenes.
    """
    passages = []
    for number, chapter in enumerate(book.chapters):
        gap = Gap.CHAPTER
        for paragraph in chapter.paragraphs:
            pieces = [piece for piece in pieces_of(paragraph) if speakable(piece)]
            for piece in pieces:
                passages.append(Passage(piece, number, gap))
                gap = Gap.NONE
            gap = Gap.PARAGRAPH if pieces else Gap.CHAPTER
    return passages


def pieces_of(paragraph: str, most: int = MOST_CHARACTERS) -> Iterator[str]:
    """A paragraph cut into pieces of at most ``most`` characters: behind a sentence, else a space."""
    text = paragraph.strip()
    while len(text) > most:
        place = _last_end(_SENTENCE_END, text, most) or _last_end(_SPACE, text, most) or most
        yield text[:place].rstrip()
        text = text[place:].lstrip()
    if text:
        yield text


def _last_end(pattern: re.Pattern[str], text: str, most: int) -> int:
    """The end of the last match among the first characters of a text; 0 without one."""
    return max((found.end() for found in pattern.finditer(text, 0, most)), default=0)


def keys_of(passages: Sequence[Passage]) -> list[str]:
    """A name for each passage: a hash of its text, and how many passages before it have the same one."""
    seen: Counter[str] = Counter()
    keys = []
    for passage in passages:
        digest = hashlib.sha256(passage.text.encode()).hexdigest()[:DIGITS]
        keys.append(f"{digest}-{seen[digest]}")
        seen[digest] += 1
    return keys
