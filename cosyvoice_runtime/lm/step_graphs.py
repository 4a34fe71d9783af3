"""Decode steps captured once as CUDA graphs and replayed, at any batch size that is served."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.cuda_graphs import CapturedGraph, GraphCapture, bucket_for
from cosyvoice_runtime.lm.network import CacheView, KVCache, SpeechLM
from cosyvoice_runtime.transfer import moved

FIRST_SPAN = 256
BATCH_STEP = 16

LogitsStep = Callable[[Tensor, Tensor, CacheView, int], Tensor]
"""From tokens, positions, slots and span to logits, as :meth:`SpeechLM.decode_step`; can be captured."""


class GraphedSteps:
    """Decode steps with one captured graph for each pair of batch size and span, all made at the start.

    Args:
        cache: whose memory the graphs read and write; nobody may use it yet.
        step: what is captured; None captures the network's own.
    """

    def __init__(
        self, lm: SpeechLM, cache: KVCache, capture: GraphCapture, step: LogitsStep | None = None
    ) -> None:
        self._step = step or lm.decode_step
        self._cache = cache
        self._capture = capture
        self._sizes = batch_sizes(cache.slots)
        self._spans = span_sizes(cache.max_len)
        self._fed = torch.zeros(2, cache.slots, dtype=torch.int64, device=lm.device)
        # Largest first: the smaller ones then find their memory in the pool.
        self._graphs = {shape: self._captured(*shape) for shape in self._shapes()}

    def size(self, needed: int) -> int:
        return bucket_for(self._sizes, needed)

    def span(self, needed: int) -> int:
        return bucket_for(self._spans, needed)

    def run(self, tokens: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], span: int) -> Tensor:
        """As `DecodeSteps.run`; the logits are overwritten by the next step."""
        size = len(tokens)
        self._fed[:, :size] = moved(torch.from_numpy(np.stack([tokens, positions])), self._fed.device)
        graph = self._graphs[size, span]
        graph.replay()
        return graph.result

    def _shapes(self) -> Iterator[tuple[int, int]]:
        return ((size, span) for size in reversed(self._sizes) for span in reversed(self._spans))

    def _captured(self, size: int, span: int) -> CapturedGraph[Tensor]:
        tokens, positions = self._fed[:, :size]
        view = self._cache.view(0, size)
        return self._capture(lambda: self._step(tokens, positions, view, span))


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
