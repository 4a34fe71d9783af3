"""Which words of a text each of its segments says, found some segments at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

from cosyvoice_runtime.alignment.spoken_text import SpokenWord, matched
from cosyvoice_runtime.alignment.words import Word
from cosyvoice_runtime.text import Segment

SaidSegment = tuple[Segment, Sequence[SpokenWord]]
"""A segment, and the words that it says."""

WINDOW, LOOK_AHEAD = 8, 2
"""Segments whose words are found together, and those behind them that are looked at, too: the time to find
them grows with the square of their number."""


def words_by_segment(words: Sequence[Word], segments: Iterable[Segment]) -> Iterator[SaidSegment]:
    """The segments of a text, each with its words.

    A window of them is read ahead of the first that is asked for, and of each :data:`WINDOW` later.

    Args:
        words: all of the text.
        segments: their ``characters`` may be known about alone.
    """
    rest = iter(segments)
    window = list(islice(rest, WINDOW + LOOK_AHEAD + 1))
    while len(window) > WINDOW + LOOK_AHEAD:
        *looked_at, _ = window
        near = words[: bisect_right(words, looked_at[-1].characters, key=attrgetter("end"))]
        found = [word for word in _found(near, looked_at) if word.segment < WINDOW]
        yield from _divided(window[:WINDOW], found)
        words, window = words[len(found) :], [*window[WINDOW:], *islice(rest, WINDOW)]
    yield from _divided(window, _found(words, window))


def _found(words: Sequence[Word], segments: Sequence[Segment]) -> list[SpokenWord]:
    return matched(words, [segment.text for segment in segments])


def _divided(segments: Sequence[Segment], found: Iterable[SpokenWord]) -> Iterator[SaidSegment]:
    said: list[list[SpokenWord]] = [[] for _ in segments]
    for word in found:
        said[word.segment].append(word)
    yield from zip(segments, said, strict=True)
