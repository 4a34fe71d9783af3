"""Prompts on their way into the cache, and which sequences have room there.

A sequence takes pages as it grows, and not for the longest speech that it may become. When the pool is used
up, a sequence that waits for text loses its pages, and without one the youngest sequence: it keeps its slot
and its draws, and is fed again from its start when there is room. So the oldest sequence that can advance
always does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.lm.cache import CacheSlots
from cosyvoice_runtime.lm.generation import FinishReason, Generation
from cosyvoice_runtime.lm.prompt import PromptSegment, num_positions
from cosyvoice_runtime.lm.sampling import IntArray


class Residents:
    """Gives sequences pages, and takes pages from others.

    ``running`` are all sequences with a slot, in the order in which they came.
    """

    def __init__(self, cache: CacheSlots) -> None:
        self._cache = cache
        self._pages = cache.pages
        self._sequences: list[Generation] = []
        self._slots = np.zeros(0, dtype=np.int64)

    def slots(self, sequences: Sequence[Generation]) -> IntArray:
        """Slots [n] of these sequences, which the caller does not change; they are mostly those of the last
        call."""
        if sequences != self._sequences:
            self._sequences = list(sequences)
            self._slots = np.array([each.slot for each in sequences], dtype=np.int64)
        return self._slots

    def hungry(self, running: Iterable[Generation]) -> list[Generation]:
        """Sequences, in order, that advance only by a feed of text, which is there or still to come."""
        holding = self._pages.holding
        return [each for each in running if each.stalled or each.slot not in holding]

    def holds(self, sequence: Generation) -> bool:
        """Whether the cache holds what the sequence was fed."""
        return sequence.slot in self._pages.holding

    def going_on(self, sequences: list[Generation], running: Sequence[Generation]) -> list[Generation]:
        """Sequences, in order, that have room for one more position.

        A sequence that finds no free page takes pages from others. A full one, or one without its pages, is
        left out.
        """
        if not sequences or self._have_room(sequences):
            return sequences
        return [each for each in sequences if self.holds(each) and self._grown(each, running)]

    def extend(self, sequence: Generation, positions: int, running: Sequence[Generation]) -> bool:
        """Make room for so many positions in all, for a sequence that has pages; returns whether there was
        enough.

        Sequences that wait for text lose their pages for it. If that is not enough, it loses its own as well.
        """
        return self._make_room(sequence, positions, self._waiting(running))

    def admit(self, sequence: Generation, positions: int, running: Sequence[Generation]) -> bool:
        """Make room for so many positions, and for the next, for a sequence without pages; returns whether
        there is.

        A page stays free for each sequence that may need one soon, so that a new sequence does not soon put
        another out. Only sequences that wait for text lose their pages for it, and only if that is enough.
        """
        pages, waiting = self._pages, self._waiting(running)
        needed = pages.needed(min(positions + 1, self._cache.max_len))
        # If all that wait for text lost their pages: so many more were free, and so many need no other.
        given = sum(int(pages.held[each.slot]) for each in waiting)
        may_grow = sum(int(pages.held[each.slot]) < pages.table.shape[1] for each in waiting)
        if pages.free + given < needed + pages.can_grow - may_grow:
            return False
        while pages.free < needed + pages.can_grow:
            self._evict(waiting.pop())
        self._cache.recomputed += sequence.lost
        sequence.lost = 0
        return pages.reserve(sequence.slot, positions)

    def _have_room(self, sequences: Sequence[Generation]) -> bool:
        slots = self.slots(sequences)
        return not np.count_nonzero(self._cache.lengths[slots] >= self._pages.room[slots])

    def _grown(self, sequence: Generation, running: Sequence[Generation]) -> bool:
        positions = int(self._cache.lengths[sequence.slot]) + 1
        if positions > self._cache.max_len:
            return False
        if self._pages.reserve(sequence.slot, positions):
            return True
        younger = [each for each in running[running.index(sequence) + 1 :] if self.holds(each)]
        speaking = [each for each in younger if not each.waiting]
        return self._make_room(sequence, positions, [*speaking, *self._waiting(running)])

    def _make_room(self, sequence: Generation, positions: int, others: list[Generation]) -> bool:
        """Take the pages of ``others``, from the last one on, and then those of the sequence itself."""
        while not self._pages.reserve(sequence.slot, positions):
            loser = others.pop() if others else sequence
            self._evict(loser)
            if loser is sequence:
                return False
        return True

    def _waiting(self, running: Iterable[Generation]) -> list[Generation]:
        """Sequences that hold pages and wait for text."""
        return [each for each in running if each.waiting and self.holds(each)]

    def _evict(self, sequence: Generation) -> None:
        sequence.lost = self._cache.evict(sequence.slot)


PREFILL_POSITIONS = 2048
"""Most positions, padding included, of several prompts in one pass: a longer one delays running sequences."""


class Prefill(NamedTuple):
    """A sequence, the prompt segments to feed now, and the position of the first."""

    sequence: Generation
    segments: Sequence[PromptSegment]
    start: int = 0

    @property
    def positions(self) -> int:
        return num_positions(self.segments)

    @property
    def end(self) -> int:
        """Positions of the sequence after this feed."""
        return self.start + self.positions


Fits = Callable[[Sequence[Prefill]], bool]
"""Whether one pass may take these together."""


class Prefills:
    """Inputs that sequences are fed before their next draw, at most ``batch`` prompts in one pass."""

    def __init__(self, cache: CacheSlots, residents: Residents, batch: int) -> None:
        self._cache = cache
        self._residents = residents
        self._batch = batch

    def groups(self, running: Sequence[Generation]) -> Iterator[list[Prefill]]:
        """Group ready inputs into passes."""
        return grouped(self.ready(self._residents.hungry(running), running), self.fits)

    def ready(self, candidates: Iterable[Generation], running: Sequence[Generation]) -> Iterator[Prefill]:
        """Take the inputs of the candidates for which the cache has room.

        A sequence that its next text would make longer than a slot ends with reason ``length``. While one
        without pages finds too few, no later sequence gets any: it would wait for ever.

        Args:
            running: all sequences; some may lose their pages.
        """
        blocked = False
        for sequence in candidates:
            if blocked and not self._residents.holds(sequence):
                continue
            prefill = self._next(sequence)
            if prefill is None:
                continue
            if prefill.end > self._cache.max_len:
                sequence.finish(FinishReason.LENGTH)
                continue
            if self._residents.holds(sequence):
                room = self._residents.extend(sequence, prefill.end, running)
            else:
                room = self._residents.admit(sequence, prefill.end, running)
            blocked |= not room
            sequence.pending = not room
            if room:
                sequence.unfed = False
                yield prefill

    def _next(self, sequence: Generation) -> Prefill | None:
        """The next input of a sequence, if there is one: all of it if the cache holds nothing of it."""
        segments = sequence.take_feed()
        if segments is None and not (sequence.unfed or sequence.pending):
            return None
        if not self._residents.holds(sequence):
            return Prefill(sequence, sequence.transcript)
        start = int(self._cache.lengths[sequence.slot])
        return None if segments is None else Prefill(sequence, segments, start)

    def fits(self, group: Sequence[Prefill]) -> bool:
        """Whether one pass may take these together."""
        padded = len(group) * max(prefill.positions for prefill in group)
        return len(group) == 1 or (len(group) <= self._batch and padded <= PREFILL_POSITIONS)


def grouped(prefills: Iterable[Prefill], fits: Fits) -> Iterator[list[Prefill]]:
    """Group consecutive prefills that one pass may take."""
    group: list[Prefill] = []
    for prefill in prefills:
        if group and not fits([*group, prefill]):
            yield group
            group = []
        group.append(prefill)
    if group:
        yield group
