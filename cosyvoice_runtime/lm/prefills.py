"""Prompts on their way into the cache, and which sequences have room there.

A sequence takes pages as it grows, not for the most that it might say. When the pool is used up, a sequence
that waits for text gives its pages back, and else the youngest: it keeps its slot and its draws, and all that
it was fed and has said is fed again when there is room. So the oldest with something to do always goes on.
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
    """Gives sequences pages, and takes them from others.

    ``running`` are all sequences with a slot, in the order in which they came.
    """

    def __init__(self, cache: CacheSlots) -> None:
        self._cache = cache
        self._pages = cache.pages
        self._sequences: list[Generation] = []
        self._slots = np.zeros(0, dtype=np.int64)

    def slots(self, sequences: Sequence[Generation]) -> IntArray:
        """Slots [n] of these sequences, not to be written; mostly they are the same as in the last call."""
        if sequences != self._sequences:
            self._sequences = list(sequences)
            self._slots = np.array([each.slot for each in sequences], dtype=np.int64)
        return self._slots

    def hungry(self, running: Iterable[Generation]) -> list[Generation]:
        """Sequences, in order, that only a feed can bring forward: of text that is there or still to come."""
        holding = self._pages.holding
        return [each for each in running if each.stalled or each.slot not in holding]

    def holds(self, sequence: Generation) -> bool:
        """Whether what a sequence was fed is in the cache."""
        return sequence.slot in self._pages.holding

    def going_on(self, sequences: list[Generation], running: Sequence[Generation]) -> list[Generation]:
        """Sequences, in order, that have room for one more position; a full one has none.

        One that needs a page and finds none free takes others' pages; who has lost its own is left out.
        """
        if not sequences or self._have_room(sequences):
            return sequences
        return [each for each in sequences if self.holds(each) and self._grown(each, running)]

    def extend(self, sequence: Generation, positions: int, running: Sequence[Generation]) -> bool:
        """Room for so many positions in all, for a sequence that has pages.

        Sequences that wait for text lose theirs for it.

        Returns:
            False if that was not enough: then it has lost its own as well.
        """
        return self._make_room(sequence, positions, self._waiting(running))

    def admit(self, sequence: Generation, positions: int, running: Sequence[Generation]) -> bool:
        """Room for so many positions, and for the next, for a sequence without pages.

        A page stays free for each that may need another soon, so that a sequence that comes in does not
        soon put another out. Only sequences that wait for text lose their pages for it.

        Returns:
            False, and no page is lost, if even that were not enough.
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
        """``others`` lose their pages, the last one first, and after them the sequence itself."""
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
        """Positions of the sequence when this has been fed."""
        return self.start + self.positions


Fits = Callable[[Sequence[Prefill]], bool]
"""Whether one pass may take these together."""


class Prefills:
    """Inputs that sequences have to be fed before their next draw.

    Args:
        batch: prompts fed in one pass at most.
    """

    def __init__(self, cache: CacheSlots, residents: Residents, batch: int) -> None:
        self._cache = cache
        self._residents = residents
        self._batch = batch

    def groups(self, running: Sequence[Generation]) -> Iterator[list[Prefill]]:
        """Group what is `ready` into passes."""
        return grouped(self.ready(self._residents.hungry(running), running), self.fits)

    def ready(self, candidates: Iterable[Generation], running: Sequence[Generation]) -> Iterator[Prefill]:
        """Take what is ready from the candidates, as far as the cache has room.

        One whose next text would make it longer than a slot may be ends with reason ``length``. While one
        that has no pages finds too few, no later sequence gets any: it would wait for ever.

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
        """Input that a sequence has to be fed, if any: all of it if the cache holds nothing of it."""
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
