"""Words of a text that comes piece by piece, and how long each may take to say."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from cosyvoice_runtime.text.markup.unsaid import TagBlanker

_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_FULL_WIDTH = "\u3001-\u303f\uff01-\uff65"
WORD = re.compile(rf"[{_IDEOGRAPHS}{_FULL_WIDTH}]|[^\s{_IDEOGRAPHS}{_FULL_WIDTH}]+")
"""A Chinese or Japanese character or mark is a word of its own; others have spaces between."""
IDEOGRAPH = re.compile(rf"[{_IDEOGRAPHS}]")
BEGINS = re.compile(rf" |{IDEOGRAPH.pattern}")
"""A text token that begins a word."""
IDEOGRAPH_UNITS, DIGIT_UNITS = 3.0, 4.0
"""A character as long as so many letters: a syllable of Chinese; a digit read out."""
LONGEST = 256
"""Characters of a word; what has no spaces is cut."""

WordMethod = Literal["attention", "estimate"]
"""How words are timed: by the speech LM's attention, or by their lengths."""


@dataclass(frozen=True)
class Word:
    """
    Attributes:
        text: exactly as it came.
        end: its end among the characters of the whole text.
        units: how long it is to say, in letters.
    """

    text: str
    end: int
    units: float


class TimedWord(NamedTuple):
    """A word as it was sent; seconds count from the first sample."""

    text: str
    start_s: float
    end_s: float


class WordReader:
    """Cuts a text into words as it comes; tags are none.

    Args:
        markup: of the text.
    """

    def __init__(self, markup: str | None = None) -> None:
        self._tags = TagBlanker(markup)
        self._tail = ""
        self._end = 0

    @property
    def end(self) -> int:
        """Characters of the text so far."""
        return self._end

    def read(self, text: str) -> list[Word]:
        """Words that are whole by now: another one, or a space, follows them."""
        self._take(self._tags.push(text))
        matches = list(WORD.finditer(self._tail))
        if matches and matches[-1].end() == len(self._tail) and len(matches[-1][0]) < LONGEST:
            del matches[-1]
        return self._cut(matches)

    def finish(self) -> list[Word]:
        """The words that the text ends with; what could have been the beginning of a tag is among them."""
        self._take(self._tags.finish())
        return self.break_off()

    def break_off(self) -> list[Word]:
        """The word that the text has broken off in, which nothing continues."""
        return self._cut(list(WORD.finditer(self._tail)))

    def _take(self, text: str) -> None:
        self._tail += text
        self._end += len(text)

    def _cut(self, matches: list[re.Match[str]]) -> list[Word]:
        start = self._end - len(self._tail)
        words = [make_word(match[0], start + match.end()) for match in matches]
        if words:
            self._tail = self._tail[words[-1].end - start :]
        self._tail = self._tail.lstrip()
        return words


def read_words(text: str, markup: str | None = None) -> list[Word]:
    """The words of a text that is there as a whole."""
    reader = WordReader(markup)
    return reader.read(text) + reader.finish()


def make_word(text: str, end: int) -> Word:
    return Word(text, end, letters(text))


def letters(text: str) -> float:
    """How long a text is to say, in letters."""
    return sum(map(_units, text))


@lru_cache(4096)
def _units(character: str) -> float:
    if IDEOGRAPH.match(character):
        return IDEOGRAPH_UNITS
    kind = unicodedata.category(character)[0]
    if kind == "N":
        return DIGIT_UNITS
    return 1.0 if kind == "L" else 0.0
