"""Decode steps recorded once as CUDA graphs and replayed.

A step of this network is some 500 small kernels: a GPU computes them faster than a host can launch them one
by one, at any batch size that is served.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.speech_lm.cache import KVCache
from cosyvoice_runtime.speech_lm.network import SpeechLM

FIRST_SPAN = 256
BATCH_STEP = 16


class Recording(NamedTuple):
    """A recorded computation.

    Attributes:
        replay: repeats it on the same memory.
        result: where it leaves what it computes.
        recorded: the computation itself, kept because what it refers to must not be freed.
    """

    replay: Callable[[], None]
    result: Tensor
    recorded: Callable[[], Tensor]


Recorder = Callable[[Callable[[], Tensor]], Recording]


class GraphedSteps:
    """Decode steps with one recording for each pair of batch size and span, all made at the start.

    Args:
        cache: whose memory the recordings read and write; nobody may use it yet.
    """

    def __init__(self, lm: SpeechLM, cache: KVCache, record: Recorder) -> None:
        self._lm = lm
        self._cache = cache
        self._record = record
        self._sizes = batch_sizes(cache.slots)
        self._spans = span_sizes(cache.max_len)
        self._fed = torch.zeros(2, cache.slots, dtype=torch.int64, device=lm.device)
        # Largest first: the smaller ones then find their memory in the pool.
        self._recordings = {shape: self._recorded(*shape) for shape in self._shapes()}

    def size(self, needed: int) -> int:
        return _next(self._sizes, needed)

    def span(self, needed: int) -> int:
        return _next(self._spans, needed)

    def run(self, tokens: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], span: int) -> Tensor:
        """As `DecodeSteps.run`; the logits are overwritten by the next step."""
        size = len(tokens)
        self._fed[:, :size].copy_(torch.from_numpy(np.stack([tokens, positions])))
        recording = self._recordings[size, span]
        recording.replay()
        return recording.result

    def _shapes(self) -> Iterator[tuple[int, int]]:
        return ((size, span) for size in reversed(self._sizes) for span in reversed(self._spans))

    def _recorded(self, size: int, span: int) -> Recording:
        tokens, positions = self._fed[:, :size]
        view = self._cache.view(0, size)
        return self._record(lambda: self._lm.decode_step(tokens, positions, view, span))


class CudaRecorder:
    """Records CUDA graphs that share a pool of memory, so only one of them may be in use at a time."""

    WARM_UPS = 2

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, compute: Callable[[], Tensor]) -> Recording:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries set themselves up in their first calls
            for _ in range(self.WARM_UPS):
                compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = compute()
        return Recording(graph.replay, result, compute)


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


def _next(sizes: list[int], needed: int) -> int:
    return sizes[bisect_left(sizes, needed)]
