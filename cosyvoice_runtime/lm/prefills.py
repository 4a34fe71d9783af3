"""Prompts on their way into the cache, several in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from cosyvoice_runtime.lm.cache_slots import CacheSlots
from cosyvoice_runtime.lm.generation import FinishReason, Generation
from cosyvoice_runtime.lm.prompt import PromptPart, num_positions

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
    """What sequences have to be fed before their next draw.

    Args:
        batch: prompts fed in one pass at most.
    """

    def __init__(self, cache: CacheSlots, batch: int) -> None:
        self._cache = cache
        self._batch = batch

    def groups(self, running: Iterable[Generation]) -> Iterator[list[Prefill]]:
        """What is ready, pass by pass.

        A sequence without room for its next text ends with reason ``length``.
        """
        return grouped(self.ready(running), self.fits)

    def ready(self, running: Iterable[Generation]) -> Iterator[Prefill]:
        """Take what is ready from the sequences; one without room for it ends with reason ``length``."""
        for sequence in running:
            parts = sequence.take_feed()
            if parts is None:
                continue
            prefill = Prefill(sequence, parts, int(self._cache.lengths[sequence.slot]))
            if prefill.end > self._cache.max_len:
                sequence.finish(FinishReason.LENGTH)
            else:
                yield prefill

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
