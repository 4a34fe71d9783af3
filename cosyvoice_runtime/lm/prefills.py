"""Prompts on their way into the cache, several in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from torch import Tensor

from cosyvoice_runtime.lm.generation import FinishReason, Generation
from cosyvoice_runtime.lm.network import KVCache, SpeechLM
from cosyvoice_runtime.lm.prompt import PromptPart, num_positions

PREFILL_POSITIONS = 2048
"""Most positions, padding included, of several prompts in one pass: a longer one delays running sequences."""


class Prefill(NamedTuple):
    """A sequence and the parts of its prompt to feed now."""

    sequence: Generation
    parts: Sequence[PromptPart]


Fits = Callable[[int, int], bool]
"""Whether one pass may take so many prompts, the longest with so many positions."""


class Prefills:
    """Feeds what sequences have to be fed before their next draw.

    Args:
        batch: prompts fed in one pass at most.
    """

    def __init__(self, lm: SpeechLM, cache: KVCache, batch: int) -> None:
        self._lm = lm
        self._cache = cache
        self._batch = batch

    def run(self, running: Iterable[Generation]) -> Iterator[tuple[list[Generation], Tensor]]:
        """Feed what is ready, pass by pass: the sequences and their logits [sequences, V].

        A sequence without room for its next text ends with reason ``length``.
        """
        for group in grouped(self.ready(running), self.fits):
            yield [prefill.sequence for prefill in group], self.feed(group)

    def ready(self, running: Iterable[Generation]) -> Iterator[Prefill]:
        """Take what is ready from the sequences; one without room for it ends with reason ``length``."""
        for sequence in running:
            parts = sequence.take_feed()
            if parts is None:
                continue
            if self._cache.lengths[sequence.slot] + num_positions(parts) > self._cache.max_len:
                sequence.finish(FinishReason.LENGTH)
            else:
                yield Prefill(sequence, parts)

    def fits(self, rows: int, positions: int) -> bool:
        """Whether one pass may take so many prompts, the longest with so many positions."""
        return rows == 1 or (rows <= self._batch and rows * positions <= PREFILL_POSITIONS)

    def feed(self, group: Sequence[Prefill]) -> Tensor:
        """Logits [sequences, V] after one pass."""
        embeddings = [self._lm.embed(prefill.parts) for prefill in group]
        slots = [prefill.sequence.slot for prefill in group]
        starts = self._cache.lengths[slots].tolist()
        self._cache.lengths[slots] += [len(embedded) for embedded in embeddings]
        if len(group) == 1:
            view = self._cache.view(slots[0], slots[0] + 1)
            return self._lm.prefill(embeddings[0], starts[0], view)[None]
        return self._lm.prefill_batch(embeddings, starts, self._cache.gathered(slots))


def grouped(prefills: Iterable[Prefill], fits: Fits) -> Iterator[list[Prefill]]:
    """Consecutive ones that one pass may take."""
    group: list[Prefill] = []
    for prefill in prefills:
        longest = max(num_positions(other.parts) for other in [*group, prefill])
        if group and not fits(len(group) + 1, longest):
            yield group
            group = []
        group.append(prefill)
    if group:
        yield group
