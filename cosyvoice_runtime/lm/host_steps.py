"""Steps whose ids are drawn on the host before the next step begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from cosyvoice_runtime.lm.cache import CacheSlots
from cosyvoice_runtime.lm.generation import Drawn, Generation
from cosyvoice_runtime.lm.prefills import Prefill, Prefills, Residents
from cosyvoice_runtime.lm.sampling import Blocked, IntArray, SamplerState

Logits = Any
"""[B, V] float32 in the form that the network's own `CachedNetwork.sample` takes; rows by a list of them."""


class CachedNetwork(Protocol):
    """A network over a cache whose slots' lengths it brings forward."""

    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> Logits:
        """Feed a speech token to each of these slots, which are in ascending order."""

    def prefill(self, group: Sequence[Prefill]) -> Logits:
        """Feed parts of prompts in one pass."""

    def sample(self, logits: Logits, states: Sequence[SamplerState], blocked: Blocked | None) -> list[int]:
        """As `sampling.sample_batch`."""


class HostSteps:
    """Feeds, draws and waits, in steps as large as needed.

    Args:
        prefill_batch: prompts fed in one pass at most.
        fill_id: of the fill marker.
    """

    def __init__(self, network: CachedNetwork, cache: CacheSlots, prefill_batch: int, fill_id: int) -> None:
        self._network = network
        self._cache = cache
        self._residents = Residents(cache)
        self._prefills = Prefills(cache, self._residents, prefill_batch)
        self._fill_id = fill_id

    def advance(self, running: Sequence[Generation]) -> list[Drawn]:
        """As `Steps.advance`."""
        return [drawn for sequences, logits in self._feed(running) for drawn in self._draw(sequences, logits)]

    def _feed(self, running: Sequence[Generation]) -> Iterator[tuple[list[Generation], Logits]]:
        sequences = self._residents.going_on([each for each in running if each.unfed], running)
        if sequences:
            ordered = sorted(sequences, key=lambda sequence: sequence.slot)
            yield ordered, self._decode(ordered)
        for group in self._prefills.groups(running):
            yield [prefill.sequence for prefill in group], self._network.prefill(group)

    def _decode(self, sequences: list[Generation]) -> Logits:
        slots = [sequence.slot for sequence in sequences]
        logits = self._network.decode(slots, [sequence.tokens[-1] for sequence in sequences])
        for sequence in sequences:
            sequence.unfed = False
        return logits

    def _draw(self, sequences: list[Generation], logits: Logits) -> Iterator[Drawn]:
        ids = [self._fill_id] * len(sequences)
        drawing = [index for index, sequence in enumerate(sequences) if not sequence.must_fill]
        if drawing:
            chosen = logits if len(drawing) == len(sequences) else logits[drawing]
            samplers = [sequences[index].sampler for index in drawing]
            blocked = blocked_ids([sequences[index] for index in drawing])
            for index, id_ in zip(drawing, self._network.sample(chosen, samplers, blocked), strict=True):
                ids[index] = id_
        for sequence, id_ in zip(sequences, ids, strict=True):
            yield sequence, id_, int(self._cache.lengths[sequence.slot])


def blocked_ids(sequences: Sequence[Generation]) -> Blocked | None:
    """Stop ids that must not be drawn next; None if all may."""
    blocked = np.array([sequence.blocked for sequence in sequences])
    return blocked if blocked.any() else None


def fed_slots(cache: CacheSlots, slots: Sequence[int], tokens: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Token and position of every slot up to the last of ``slots``; brings their lengths forward.

    A slot that has nothing to feed passes any token at its next free position: what is written there is
    overwritten before it is ever attended to. One that waits with a full cache has no such position; it can
    only end from there, and passes its last.

    Returns:
        both int64 [last slot + 1].
    """
    size = slots[-1] + 1
    fed = np.zeros(size, dtype=np.int64)
    fed[slots] = tokens
    positions = np.minimum(cache.lengths[:size], cache.max_len - 1)
    cache.lengths[list(slots)] += 1
    return fed, positions
