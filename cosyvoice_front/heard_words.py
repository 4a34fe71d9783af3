"""When each word of a speech is heard: as its server tells, or by estimate."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Generic, TypeVar

from cosyvoice_client import AudioChunk
from cosyvoice_client.words import TimedWord
from cosyvoice_runtime.alignment.estimate import WordTimes

ESTIMATE = "estimate"
"""How words are timed here, by the server's own name for it."""
ROUNDING_S = 0.001
"""By how much a server may round the end of a word up."""
T = TypeVar("T")


class HeardWords:
    """The words of one speech that are over. Its first chunk decides who times all of them.

    Args:
        times: places the words, whose text it is given through this; None where nobody asks for words.

    Attributes:
        by: how the latest words are timed: ``attention`` or ``estimate``.
    """

    def __init__(self, times: WordTimes | None) -> None:
        self._times = times
        self._is_first = True
        self.by = ESTIMATE

    def add(self, text: str) -> None:
        """More of the text."""
        if self._times is not None:  # it takes longer than all else that is done with a text
            self._times.add(text)

    def bar(self, position: int) -> None:
        """A segment ends after this many characters."""
        if self._times is not None:
            self._times.bar(position)

    def cut(self, position: int) -> None:
        """Nothing behind this many characters is spoken."""
        if self._times is not None:
            self._times.cut(position)

    def hear(self, chunk: AudioChunk) -> Sequence[TimedWord]:
        """Words that are over by now, after this chunk."""
        if self._is_first and chunk.words_by:
            self._times = None
        self._is_first = False
        if self._times is not None:
            return _told(self._times.hear(chunk.samples))
        self.by = chunk.words_by or self.by
        return chunk.words

    def end_segment(self, position: int) -> Sequence[TimedWord]:
        """The words that are left up to this many characters."""
        return () if self._times is None else _told(self._times.end_segment(position))

    def finish(self) -> Sequence[TimedWord]:
        """The words left of the text, when no more audio comes."""
        return () if self._times is None else _told(self._times.finish())


def _told(words: Iterable[tuple[str, float, float]]) -> list[TimedWord]:
    return [TimedWord(*word) for word in words]


class LeavingWords(Generic[T]):
    """Words, with whatever is told of them, that wait until all of their audio has left."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, str, T]] = deque()

    def add(self, word: T, end_s: float, by: str) -> None:
        """Add the next word, which ends at this second of the speech and is timed by this method."""
        self._waiting.append((end_s, by, word))

    def taken(self, left_s: float = math.inf) -> list[tuple[str, list[T]]]:
        """The words that were not taken before and are over when this many seconds have left, in order and
        behind their method."""
        taken = []
        while self._waiting and self._waiting[0][0] <= left_s + ROUNDING_S:
            taken.append(self._waiting.popleft())
        grouped = groupby(taken, key=lambda each: each[1])
        return [(by, [word for _, _, word in words]) for by, words in grouped]
