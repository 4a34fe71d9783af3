"""Which of the spoken text says a word as it was sent: one that normalisation has changed says several."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

from cosyvoice_runtime.alignment.words import WORD, Word, letters

MOST_PIECES = 16
"""Most words that one is said with: a number of twelve digits."""
BAND = 24
"""Furthest that a word may lie from its share of what lies between two equal words, in spoken words."""
SILENT, ALIKE = 5.0, 1.0
"""Cost of a word that nothing says, and what a common first letter is worth; a word that is said by as much
costs 0, and by three times as much 1."""


class SpokenWord(NamedTuple):
    """A word as it was sent, and the characters of a segment's text that say it, none for a mark that nothing
    says."""

    word: Word
    segment: int
    start: int
    end: int


class _TextPiece(NamedTuple):
    segment: int
    start: int
    end: int
    text: str


def matched(words: Sequence[Word], texts: Sequence[str]) -> list[SpokenWord]:
    """Find each word in the normalised texts of the segments; places never go back.

    Equal words are found first. What lies between two of them is shared out by lengths and first letters.
    """
    pieces = [
        _TextPiece(segment, found.start(), found.end(), found[0])
        for segment, text in enumerate(texts)
        for found in WORD.finditer(text)
    ]
    sent, said = [_plain(word.text) for word in words], [_plain(piece.text) for piece in pieces]
    matcher = SequenceMatcher(None, sent, said, autojunk=False)
    shares: list[tuple[int, int]] = []
    for same, first, end, start, stop in matcher.get_opcodes():
        if same == "insert":
            _extend(shares, stop)
        elif same == "equal":
            shares += [(place, place + 1) for place in range(start, stop)]
        else:
            shares += _shared(words[first:end], pieces[start:stop], start)
    return list(_placed(words, pieces, shares))


def _extend(shares: list[tuple[int, int]], stop: int) -> None:
    """Let the last word take pieces that no word was sent for."""
    if shares:
        shares[-1] = shares[-1][0], stop


def _shared(words: Sequence[Word], pieces: Sequence[_TextPiece], start: int) -> Iterator[tuple[int, int]]:
    """Pieces of each word, where none is equal: those that make the least sum of `_cost`."""
    costs = [0.0] + [math.inf] * len(pieces)
    traces: list[list[int]] = []
    for number, word in enumerate(words, 1):
        middle = number * len(pieces) // len(words)
        further, trace = [math.inf] * (len(pieces) + 1), [0] * (len(pieces) + 1)
        for end in range(max(0, middle - BAND), min(len(pieces), middle + BAND) + 1):
            for first in range(end, max(-1, end - MOST_PIECES - 1), -1):
                cost = costs[first] + _cost(word, pieces[first:end])
                if cost < further[end]:
                    further[end], trace[end] = cost, first
        costs = further
        traces.append(trace)
    ends = [len(pieces) if costs[-1] < math.inf else min(range(len(costs)), key=costs.__getitem__)]
    for trace in traces[::-1]:
        ends.append(trace[ends[-1]])
    ends[0] = len(pieces)
    for first, end in pairwise(ends[::-1]):
        yield start + first, start + end


def _cost(word: Word, pieces: Sequence[_TextPiece]) -> float:
    """How unlikely it is that pieces say a word: by lengths, and whether both begin alike."""
    if not pieces:
        return SILENT if word.units else 0.0
    said = "".join(_plain(piece.text) for piece in pieces)
    cost = abs(math.log((letters(said) + 1) / (word.units + 1)))
    return cost - ALIKE * (_plain(word.text)[:1] == said[:1])


def _placed(
    words: Sequence[Word], pieces: Sequence[_TextPiece], shares: Sequence[tuple[int, int]]
) -> Iterator[SpokenWord]:
    segment, behind = (pieces[0].segment, pieces[0].start) if pieces else (0, 0)
    for word, (first, end) in zip(words, shares, strict=True):
        if first == end:
            yield SpokenWord(word, segment, behind, behind)
            continue
        segment = pieces[first].segment
        last = max(place for place in range(first, end) if pieces[place].segment == segment)
        behind = pieces[last].end
        yield SpokenWord(word, segment, pieces[first].start, behind)


def _plain(text: str) -> str:
    """A word as it is compared: letters and digits without case; a mark as it is."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"[\W_]", "", folded) or folded
