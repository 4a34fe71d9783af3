"""Prompts on their way into the cache, several in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from cosyvoice_runtime.lm.cache_slots import CacheSlots
from cosyvoice_runtime.lm.generation import FinishReason, Generation
from cosyvoice_runtime.lm.prompt import PromptPart, num_positions
from cosyvoice_runtime.lm.residents import Residents

PREFILL_POSITIONS = 2048
"""Most positions, padding included, of several prompts in one pass: a longer one delays running sequences."""


class Prefill(NamedTuple):
    """A sequence, the parts of its prompt to feed now, and the position of the first."""

    sequence: Generation
    parts: Sequence[PromptPart]
    start: int = 0

    @property
    def positions(self) -> int:
        return num_positions(self.parts)

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
        """`ready`, pass by pass."""
        return grouped(self.ready(self._residents.hungry(running), running), self.fits)

    def ready(self, turn: Iterable[Generation], running: Sequence[Generation]) -> Iterator[Prefill]:
        """Take what is ready from sequences whose turn it is, as far as the cache has room.

        One whose next text would make it longer than a slot may be ends with reason ``length``. While one
        that has no pages finds too few, nobody who came later gets any: it would wait for ever.

        Args:
            running: all sequences; some may lose their pages.
        """
        blocked = False
        for sequence in turn:
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
        parts = sequence.take_feed()
        if parts is None and not (sequence.unfed or sequence.pending):
            return None
        if not self._residents.holds(sequence):
            return Prefill(sequence, sequence.transcript)
        start = int(self._cache.lengths[sequence.slot])
        return None if parts is None else Prefill(sequence, parts, start)

    def fits(self, group: Sequence[Prefill]) -> bool:
        """Whether one pass may take these together."""
        padded = len(group) * max(prefill.positions for prefill in group)
        return len(group) == 1 or (len(group) <= self._batch and padded <= PREFILL_POSITIONS)


def grouped(prefills: Iterable[Prefill], fits: Fits) -> Iterator[list[Prefill]]:
    """Consecutive ones that one pass may take."""
    group: list[Prefill] = []
    for prefill in prefills:
        if group and not fits([*group, prefill]):
            yield group
            group = []
        group.append(prefill)
    if group:
        yield group
