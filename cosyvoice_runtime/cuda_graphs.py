"""Work of a GPU recorded once as a CUDA graph and replayed.

The networks of this library are hundreds of small kernels a step: a GPU computes them faster than a host can
launch them one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Recording(Generic[T]):
    """A recorded computation.

    Attributes:
        replay: repeats it on the same memory.
        result: where it leaves what it computes.
        recorded: the computation itself, kept because what it refers to must not be freed.
    """

    replay: Callable[[], object]
    result: T
    recorded: Callable[[], T]


class Recorder(Protocol):
    """Makes recordings; the computation may run several times while it is recorded.

    The result of a new recording holds what the computation gives, as after a replay.
    """

    def __call__(self, compute: Callable[[], T]) -> Recording[T]: ...


class CudaRecorder:
    """Records CUDA graphs of one GPU, whichever is the calling thread's own.

    They share a pool of memory: a result is valid until a recording made before its own is replayed, so
    whoever keeps one clones it first.
    """

    WARM_UPS = 2

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        # One for all: libraries keep a workspace for every stream they have seen.
        self._stream = torch.cuda.Stream(device)

    def __call__(self, compute: Callable[[], T]) -> Recording[T]:
        with torch.cuda.device(self._device):
            graph, result = self._captured(compute)

        def replay() -> None:
            with torch.cuda.device(self._device):
                graph.replay()

        replay()  # capturing computes nothing, and the next recording may be made of this result
        return Recording(replay, result, compute)

    def _captured(self, compute: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):  # libraries set themselves up in their first calls
            for _ in range(self.WARM_UPS):
                compute()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            result = compute()
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph, result


def groups(work: Sequence[T], holds: Callable[[T], bool], max_rows: int) -> Iterator[list[T]]:
    """What goes into one call each: a row that no recording holds keeps no others from theirs."""
    held, others = [row for row in work if holds(row)], [row for row in work if not holds(row)]
    for start in range(0, len(held), max_rows):
        yield held[start : start + max_rows]
    if others:
        yield others


def next_size(sizes: Sequence[int], needed: int) -> int:
    """The smallest of ascending sizes that is large enough.

    Raises:
        IndexError: none is.
    """
    return sizes[bisect_left(sizes, needed)]


def row_sizes(max_rows: int) -> list[int]:
    """1 and what doubling gives; the last one is ``max_rows``."""
    sizes = [2**power for power in range(max_rows.bit_length()) if 2**power < max_rows]
    return [*sizes, max_rows]
