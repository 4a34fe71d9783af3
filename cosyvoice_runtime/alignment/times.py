"""Times of a segment's words, from the path of its speech tokens through its text tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.alignment.path import WORDLESS, TextPath
from cosyvoice_runtime.alignment.spoken_text import SpokenWord
from cosyvoice_runtime.alignment.words import Word, letters
from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads

AT_ONCE = 10
"""Rows that the path takes at a time, however they come: so words have the same times in every answer. Fewer
at a time take longer, more are told later."""
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
        self._rest = np.zeros((0, len(spans)), np.float32)
        self._told = 0

    def trail(self, words: Sequence[Word]) -> None:
        """Take marks that nothing says, behind the text."""
        end = float(len(self._lengths))
        self._places += [(word, end, end) for word in words]

    def push(self, shares: Floats) -> list[WordRows]:
        """Words whose end is settled by more rows of attention, ``[rows, text tokens]``."""
        rows, told = np.concatenate([self._rest, shares]), []
        whole = len(rows) - len(rows) % AT_ONCE
        for start in range(0, whole, AT_ONCE):
            self._path.push(rows[start : start + AT_ONCE])
            told += self._settled()
        self._rest = rows[whole:]
        return told

    def _settled(self) -> list[WordRows]:
        settled, first = len(self._path.starts) - 1, self._told
        while self._told < len(self._places) - 1 and self._places[self._told][2] <= settled:
            self._told += 1
        return self._from(first)

    def finish(self) -> list[WordRows]:
        """The words that are left at the end of the segment's speech."""
        self._path.push(self._rest)
        self._path.finish()
        first, self._told = self._told, len(self._places)
        return self._from(first)

    def _from(self, first: int) -> list[WordRows]:
        """The words from one of them on up to those that are still to be told."""
        starts, lead = [*self._path.starts, self._path.rows], self._lead()

        def row(place: float) -> float:
            """The row of a place among the text tokens; the first one is that of the first row."""
            if place == 0:
                return 0.0
            return min(max(between(starts, place) + lead, 0.0), float(self._path.rows))

        return [WordRows(word, row(start), row(end)) for word, start, end in self._places[first : self._told]]

    def _lead(self) -> float:
        """Rows by which the path is ahead of the speech, by the pace of the tokens that are settled."""
        starts = self._path.starts
        settled = self._lengths[1 : len(starts) - 1]
        lasted = starts[-1] - starts[1] if settled else 0
        tokens = sum(length != WORDLESS for length in settled)
        return self._heads.lead(lasted - tokens, sum(settled))


def between(values: Sequence[float], place: float) -> float:
    """The value at a place among values, on a line between two of them; those at the ends go on."""
    first = min(max(int(place), 0), len(values) - 1)
    following = values[min(first + 1, len(values) - 1)]
    return float(values[first] + (following - values[first]) * max(place - first, 0.0))


def places(word: SpokenWord, text: str, spans: Spans) -> tuple[float, float]:
    """Beginning and end of a word among text tokens, in tokens; parts of one by its characters."""
    return _place(word.start, text, spans), _place(word.end, text, spans)


def _place(character: int, text: str, spans: Spans) -> float:
    number = bisect_right(spans, character, key=itemgetter(1))
    if number == len(spans):
        return float(number)
    start, end = spans[number]
    said = start + len(text[start:end]) - len(text[start:end].lstrip())
    return number + max(0.0, (character - said) / max(1, end - said))
