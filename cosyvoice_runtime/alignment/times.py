"""Times of a segment's words, from the path of its speech tokens through its text tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.alignment.path import WORDLESS, TextPath
from cosyvoice_runtime.alignment.spoken_text import SpokenWord
from cosyvoice_runtime.alignment.words import Word, letters
from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads

Spans = Sequence[tuple[int, int]]
"""First character and end of each text token."""


class WordRows(NamedTuple):
    """A word, and where it begins and ends among the rows, one for each speech token that was drawn."""

    word: Word
    start: float
    end: float


class SegmentTimes:
    """Tells the words of a segment as the path gets behind them.

    Args:
        words: of this segment, in order.
        text: the segment's, of whose tokens `spans` tells.
        heads: whose attention is followed.
    """

    def __init__(self, words: Sequence[SpokenWord], text: str, spans: Spans, heads: AlignmentHeads) -> None:
        self._places = [(each.word, *places(each, text, spans)) for each in words]
        self._lengths = [letters(text[start:end]) for start, end in spans]
        self._path = TextPath(self._lengths, heads.rows_per_letter)
        self._heads = heads
        self._told = 0

    def trail(self, words: Sequence[Word]) -> None:
        """Take marks that nothing says, behind the text."""
        end = float(len(self._lengths))
        self._places += [(word, end, end) for word in words]

    def push(self, shares: Floats) -> list[WordRows]:
        """Words whose end is settled by more rows of attention, ``[rows, text tokens]``."""
        self._path.push(shares)
        settled = len(self._path.starts) - 1
        words = []
        while self._told < len(self._places) - 1 and self._places[self._told][2] <= settled:
            words.append(self._tell())
        return words

    def finish(self) -> list[WordRows]:
        """The words that are left at the end of the segment's speech."""
        self._path.finish()
        return [self._tell() for _ in self._places[self._told :]]

    def _tell(self) -> WordRows:
        word, start, end = self._places[self._told]
        self._told += 1
        return WordRows(word, self._row(start), self._row(end))

    def _row(self, place: float) -> float:
        """The row of a place among the text tokens; the first one is that of the first row."""
        if place == 0:
            return 0.0
        starts = [*self._path.starts, self._path.rows]
        row = float(np.interp(place, np.arange(len(starts)), starts))
        return min(max(row + self._lead(), 0.0), float(self._path.rows))

    def _lead(self) -> float:
        """Rows by which the path is ahead of the speech, by the pace of the tokens that are settled."""
        starts = self._path.starts
        settled = self._lengths[1 : len(starts) - 1]
        lasted = starts[-1] - starts[1] if settled else 0
        tokens = sum(length != WORDLESS for length in settled)
        return self._heads.lead(lasted - tokens, sum(settled))


def places(word: SpokenWord, text: str, spans: Spans) -> tuple[float, float]:
    """Beginning and end of a word among text tokens, in tokens; parts of one by its characters."""
    return _place(word.start, text, spans), _place(word.end, text, spans)


def _place(character: int, text: str, spans: Spans) -> float:
    for number, (start, end) in enumerate(spans):
        if character < end:
            said = start + len(text[start:end]) - len(text[start:end].lstrip())
            return number + max(0.0, (character - said) / max(1, end - said))
    return float(len(spans))
