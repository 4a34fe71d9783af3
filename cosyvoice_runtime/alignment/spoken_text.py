"""Which of the spoken text says a word as it was sent: one that normalisation has changed says several."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.alignment.words import WORD, Word, letters
from cosyvoice_runtime.arrays import Array

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
        elif same == "delete":
            shares += [(start, start)] * (end - first)
        else:
            shares += _shared(words[first:end], pieces[start:stop], start)
    return list(_placed(words, pieces, shares))


def _extend(shares: list[tuple[int, int]], stop: int) -> None:
    """Let the last word take pieces that no word was sent for."""
    if shares:
        shares[-1] = shares[-1][0], stop


def _shared(words: Sequence[Word], pieces: Sequence[_TextPiece], start: int) -> Iterator[tuple[int, int]]:
    """Pieces of each word, where none is equal: those that make the least sum of costs.

    A word that pieces say costs by their lengths, and less if both begin alike.
    """
    said = [_plain(piece.text) for piece in pieces]
    begins = np.array([text[0] for text in said] + [""])
    lengths = np.cumsum([0.0, *map(letters, said)])
    taken = np.arange(MOST_PIECES + 1)
    costs = np.full(len(pieces) + 1, np.inf)
    costs[0] = 0.0
    traces: list[tuple[int, Array]] = []
    for number, word in enumerate(words, 1):
        middle = number * len(pieces) // len(words)
        ends = np.arange(max(0, middle - BAND), min(len(pieces), middle + BAND) + 1)
        firsts = np.maximum(ends[:, None] - taken, 0)
        spoken = lengths[ends][:, None] - lengths[firsts]
        cost = np.abs(np.log((spoken + 1) / (word.units + 1)))
        cost -= ALIKE * (begins[firsts] == _plain(word.text)[0])
        cost[:, 0] = SILENT if word.units else 0.0
        cost = np.where(taken > ends[:, None], np.inf, costs[firsts] + cost)
        counts = cost.argmin(1)
        costs = np.full(len(pieces) + 1, np.inf)
        costs[ends] = cost.min(1)
        traces.append((int(ends[0]), counts.astype(np.int8)))
    end = len(pieces) if costs[-1] < math.inf else int(costs.argmin())
    found = [len(pieces)]
    for first, counts in traces[::-1]:
        end = end - int(counts[end - first]) if end >= first else 0  # No path may reach the last words.
        found.append(end)
    for first, end in pairwise(found[::-1]):
        yield start + first, start + end


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
