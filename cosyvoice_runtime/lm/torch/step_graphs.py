"""Decode steps with their draws, captured once as CUDA graphs and replayed, at any batch size served."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.gpu.buckets import bucket_for
from cosyvoice_runtime.gpu.cuda_graphs import GraphCapture, ReplayedGraph
from cosyvoice_runtime.gpu.transfer import move
from cosyvoice_runtime.lm.torch.kv_cache import CacheView, KVCache
from cosyvoice_runtime.lm.torch.slot_draws import DrawSlots, SlotTables

FIRST_SPAN = 256
BATCH_STEP = 16

LogitsStep = Callable[[Tensor, Tensor, CacheView, int], Tensor]
"""From tokens, positions, slots and span to logits, as :meth:`SpeechLM.decode_step`; can be captured."""


@runtime_checkable
class SpanlessStep(Protocol):
    """A :data:`LogitsStep` that reads as far as each sequence goes, whatever the span."""

    def work(self, batch: int, span: int) -> Hashable:
        """How a step divides its work: for spans with one answer it computes the same."""


class GraphedSteps:
    """Decode steps and their draws, one captured graph for each pair of batch size and span that differs.

    A step feeds the ids that the tables say were drawn last. All graphs are made at the start.

    Args:
        step: what is captured, before the draws.
        cache: whose memory the graphs read and write; nobody may use it yet.
        draw: draws from the logits.
        tables: of the cache's slots.
    """

    def __init__(
        self,
        step: LogitsStep,
        cache: KVCache,
        draw: DrawSlots,
        tables: SlotTables,
        capture: GraphCapture,
    ) -> None:
        self._step = step
        self._cache = cache
        self._draw = draw
        self._tables = tables
        self._capture = capture
        self._sizes = batch_sizes(cache.slots)
        self._spans = span_sizes(cache.max_len)
        self._slots = torch.arange(cache.slots, device=cache.data.device)
        self._fed = {
            size: torch.zeros(2, size, dtype=torch.int64, device=cache.data.device) for size in self._sizes
        }
        # Largest first: the smaller ones then find their memory in the pool.
        self._graphs: dict[tuple[int, int], ReplayedGraph[Tensor]] = {}
        captured: dict[Hashable, ReplayedGraph[Tensor]] = {}
        for size, span, work in self._shapes():
            if work not in captured:
                captured[work] = self._captured(size, span)
            self._graphs[size, span] = captured[work]

    def size(self, needed: int) -> int:
        """Slots that a step takes when it needs at least ``needed`` of them."""
        return bucket_for(self._sizes, needed)

    def span(self, needed: int) -> int:
        """Positions that a step attends to when it needs at least ``needed`` of them."""
        return bucket_for(self._spans, needed)

    def run(self, positions: npt.NDArray[np.int64], turns: npt.NDArray[np.int64], span: int) -> Tensor:
        """Launch a step of the first S slots; waits for nothing.

        Args:
            positions: [S], S from :meth:`size`, each below ``span``: where the last id drawn is fed.
            turns: [S], values of `Turn`.
            span: from :meth:`span`.

        Returns:
            ids [S] drawn, as `DrawSlots`; overwritten by the next step.
        """
        self._cache.prepare()
        size = len(positions)
        move(torch.from_numpy(np.stack([positions, turns])), self._fed[size])
        graph = self._graphs[size, span]
        graph.replay()
        return graph.result

    def _shapes(self) -> Iterator[tuple[int, int, Hashable]]:
        """Batch size, span, and what is equal for shapes that one graph serves, that of the longest span."""
        step = self._step
        for size in reversed(self._sizes):
            for span in reversed(self._spans):
                yield size, span, (size, step.work(size, span) if isinstance(step, SpanlessStep) else span)

    def _captured(self, size: int, span: int) -> ReplayedGraph[Tensor]:
        view, slots = self._cache.view(0, size), self._slots[:size]
        tokens = self._tables.tokens[:size]
        positions, turns = self._fed[size]

        def step() -> Tensor:
            return self._draw(self._step(tokens, positions, view, span), slots, turns, self._tables)

        return self._capture(step)


def batch_sizes(slots: int) -> list[int]:
    """1, 2, 4, 8, then multiples of 16; the last one is ``slots``."""
    small = [size for size in (1, 2, 4, 8) if size < slots]
    return [*small, *range(BATCH_STEP, slots, BATCH_STEP), slots]


def span_sizes(max_len: int) -> list[int]:
    """256 and what doubling gives; the last one is ``max_len``."""
    sizes = []
    size = FIRST_SPAN
    while size < max_len:
        sizes.append(size)
        size *= 2
    return [*sizes, max_len]
