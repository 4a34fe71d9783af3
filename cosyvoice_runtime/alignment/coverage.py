"""Whether speech says all of its text, once, by what each speech token looks at in the text.

Thresholds are between the demo voice's right sentences and its errors made on purpose
(``benchmarks/coverage.py``). A row stands for a speech token, N for the text tokens of a segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

import numpy as np

from cosyvoice_runtime.alignment.jumping_path import JumpingPath
from cosyvoice_runtime.alignment.words import BEGINS, letters
from cosyvoice_runtime.arrays import Array, Floats

SEEN = 0.3
"""A word is passed over if no row gives it this share of the attention. Of 2,106 words of right speech, two
have under 0.4."""
ENOUGH = 0.5
"""The last word is said if rows give it this much of what its letters need; right speech gives it all."""
SAID, AGAIN = 0.55, 0.3
"""A stretch is repeated if rows gave it this much of what its letters need, then a jump led back to its
beginning, and rows gave it this much again. A glance ahead gives it less before, and the last pause, in which
heads look anywhere, less behind."""
LAST_ROWS = 6
"""Rows at the end whose jumps tell nothing: the last pause."""
HELD_ROWS = 12.0
"""Rows beyond those of its letters after which a word is held: half a second. Right words have 9 at most."""
SILENT_ROWS = 25.0
"""Rows of a mark after which it is more than a pause: a second. Right marks have 15 at most."""
WINDOW, FOLLOWED = 12, 0.5
"""Rows, and the share of the attention that the path has in them on average where speech follows the text."""
STALLED_ROWS = 38.0
"""Rows without progress after which speech has stalled: one and a half seconds."""
PACES = 0.6, 1.8
"""The slowest and the fastest pace against the usual one that an utterance is believed to have."""

Kind = Literal["skipped", "repeated", "held", "astray", "unfinished"]


class Finding(NamedTuple):
    """A place at which speech does not say its text once.

    Attributes:
        kind: ``skipped`` and ``unfinished`` are not said, ``repeated`` is said again, at ``held`` speech
            stays, and ``astray`` is where it follows no text.
        start, end: of the segment's text, in characters.
        row: at which it begins.
    """

    kind: Kind
    start: int
    end: int
    row: int


class _Word(NamedTuple):
    """Text tokens of a word, and the rows that its letters need at the usual pace; none for a mark."""

    first: int
    end: int
    needs: float


class Coverage:
    """Follows the speech of one segment through its text.

    Args:
        text: of the segment.
        spans: first character and end of each text token.
        rows_per_letter: of the alignment heads.

    Attributes:
        has_stalled: whether speech has gone on for long without getting further in the text, whatever
            followed.
        stalled_row: the row behind which speech has not got further, until it had stalled.
    """

    def __init__(self, text: str, spans: Sequence[tuple[int, int]], rows_per_letter: float) -> None:
        self._spans = spans
        lengths = [letters(text[start:end]) for start, end in spans]
        self._needs = np.array([length and 1 + rows_per_letter * length for length in lengths])
        begins = [number for number, (start, _) in enumerate(spans) if number and BEGINS.match(text[start:])]
        edges = [0, *begins, len(spans)]
        self._words = [
            _Word(first, end, float(self._needs[first:end].sum())) for first, end in pairwise(edges)
        ]
        self._path = JumpingPath(len(spans))
        self._rows: list[Floats] = []
        self._furthest = self.stalled_row = 0
        self.has_stalled = False

    def push(self, shares: Floats) -> None:
        """Take more rows of the attention's shares of the text tokens, float32 ``[rows, N]``, of sum 1."""
        for row in shares:
            self._rows.append(row)
            self._path.push(row)
            if not self.has_stalled:
                self._follow()

    def _follow(self) -> None:
        """Look whether speech gets further by the latest row."""
        if self._path.place > self._furthest:
            self._furthest, self.stalled_row = self._path.place, len(self._rows)
        waited = len(self._rows) - self.stalled_row
        self.has_stalled = bool(waited > STALLED_ROWS + PACES[1] * self._needs[self._furthest])

    @property
    def reached(self) -> int:
        """The end of the text that had been said when speech last got further, in characters."""
        if not self._rows:
            return 0
        places = self._path.places()
        furthest = places[: self.stalled_row + 1].max()
        said = [word for word in self._words if word.first <= furthest]
        rows = int(((places >= said[-1].first) & (places < said[-1].end)).sum())
        if rows < ENOUGH * said[-1].needs:
            said.pop()
        return self._spans[said[-1].end - 1][1] if said else 0

    def findings(self) -> list[Finding]:
        """Tell what is wrong with the speech so far if it ends here, in the order of the text."""
        if not self._rows:
            return [Finding("unfinished", 0, self._spans[-1][1], 0)]
        shares, places = np.stack(self._rows), self._path.places()
        rows = np.bincount(places, minlength=len(self._needs))
        pace = self._pace(rows)
        found = [
            *self._passed_over(shares, places, pace),
            *self._repeated(places, pace),
            *self._held(places, rows, pace),
            *self._astray(shares[np.arange(len(places)), places], places),
        ]
        return sorted(found, key=lambda each: (each.start, each.row))

    def _pace(self, rows: Array) -> float:
        """How much longer words take than usual."""
        took = [(self._spoken(rows, word) + 1) / (word.needs + 1) for word in self._words if word.needs]
        return float(np.clip(np.median(took), *PACES)) if took else 1.0

    def _spoken(self, rows: Array, word: _Word) -> float:
        """Rows of a word without those of its marks."""
        return float((rows * (self._needs > 0))[word.first : word.end].sum())

    def _passed_over(self, shares: Floats, places: Array, pace: float) -> Iterator[Finding]:
        words = [word for word in self._words if word.needs]
        is_said = [bool((shares[:, word.first : word.end].sum(1) >= SEEN).any()) for word in words]
        for row in np.flatnonzero(np.diff(places) > 1):
            for number, word in enumerate(words):
                if places[row] < word.first and word.end <= places[row + 1]:
                    is_said[number] = is_said[number] and bool((places[row + 1 :] == word.first).any())
        if words and is_said[-1]:
            last = words[-1]
            is_said[-1] = shares[:, last.first : last.end].sum() >= ENOUGH * pace * last.needs
        for said, run in groupby(range(len(words)), key=is_said.__getitem__):
            first, *_ = whole = list(run)
            if not said:
                kind: Kind = "unfinished" if whole[-1] == len(words) - 1 else "skipped"
                behind = np.flatnonzero(places >= words[first].first)
                yield self._found(kind, words[first].first, words[whole[-1]].end, behind, len(places))

    def _repeated(self, places: Array, pace: float) -> Iterator[Finding]:
        behind = 0
        for row in np.flatnonzero(np.diff(places[: len(places) - LAST_ROWS]) < 0):
            first, end = int(places[row + 1]), int(places[row]) + 1
            needs = pace * self._needs[first:end].sum()
            on_stretch = (places >= first) & (places < end) & (self._needs[places] > 0)
            said, again = on_stretch[: row + 1].sum(), on_stretch[row + 1 :].sum()
            if first >= behind and needs and said > SAID * needs and again > AGAIN * needs:
                yield self._found("repeated", first, end, [row + 1], 0)
                behind = end

    def _held(self, places: Array, rows: Array, pace: float) -> Iterator[Finding]:
        for word in self._words:
            most = HELD_ROWS + pace * word.needs
            marks = [token for token in range(word.first, word.end) if not self._needs[token]]
            is_long = any(rows[token] > SILENT_ROWS for token in marks)
            if is_long or (word.needs and self._spoken(rows, word) > most):
                inside = np.flatnonzero((places >= word.first) & (places < word.end))
                yield self._found("held", word.first, word.end, inside, 0)

    def _astray(self, on_path: Floats, places: Array) -> Iterator[Finding]:
        """Stretches of which the path has little of the attention."""
        if len(on_path) < WINDOW:
            return
        means = np.convolve(on_path, np.full(WINDOW, 1 / WINDOW), "valid")
        for lost, run in groupby(range(len(means)), key=lambda row: bool(means[row] < FOLLOWED)):
            if lost:
                first, *_ = whole = list(run)
                looked = places[first : whole[-1] + WINDOW]
                yield self._found("astray", int(looked.min()), int(looked.max()) + 1, [first], 0)

    def _found(self, kind: Kind, first: int, end: int, rows: Sequence[int] | Array, other: int) -> Finding:
        """A finding of some text tokens, from the first of these rows on, or else from another one."""
        start, stop = self._spans[first][0], self._spans[end - 1][1]
        return Finding(kind, start, stop, int(rows[0]) if len(rows) else other)
