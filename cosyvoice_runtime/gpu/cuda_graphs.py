"""GPU work that is captured once as a CUDA graph and replayed.

The networks of this library are hundreds of small kernels a step: a GPU computes them faster than a host can
launch them one by one.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

logger = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ONE_AT_A_TIME = threading.Lock()
"""This lock is held during each capture: meanwhile CUDA refuses every thread's wait for the whole device."""


class ReplayedGraph(Protocol[T_co]):
    """A captured call, as its users see it."""

    @property
    def replay(self) -> Callable[[], object]:
        """Repeat the call on the same memory."""

    @property
    def result(self) -> T_co:
        """The memory with the result of the last replay."""


@dataclass(frozen=True)
class CapturedGraph(Generic[T]):
    """A captured computation.

    Attributes:
        replay: repeats the computation on the same memory.
        result: memory that holds the result.
        captured: the computation itself, kept because what it refers to must not be freed.
    """

    replay: Callable[[], object]
    result: T
    captured: Callable[[], T]


class GraphCapture(Protocol):
    """Captures computations; each may run several times while it is captured."""

    def __call__(
        self, compute: Callable[[], T], warm_up: Callable[[], object] | None = None
    ) -> ReplayedGraph[T]:
        """Capture a computation.

        Args:
            warm_up: may run before the computation is captured: less of it, with all its kernels. Nothing is
                computed then before the first replay; otherwise the result of a new graph holds what the
                computation gives, as after one.
        """


class CudaGraphCapture:
    """Captures CUDA graphs of one GPU, whichever device is the calling thread's current one.

    They share a pool of memory: a result is valid until a graph captured before its own is replayed, so
    a result that is kept must be cloned first.

    Of computations of the same code, of whatever sizes, only the first is run before it is captured, for
    libraries set themselves up for a stream in a first call. Kernels that only others need are loaded while
    those are captured, which takes no time of the GPU, and half of the host's time for all.

    Args:
        stream: stream of a partition of the GPU, on which the captured work runs.
        alone: whether nothing else computes on the GPU, so that memory of warm-ups can be returned.
    """

    def __init__(
        self, device: torch.device, stream: torch.cuda.Stream | None = None, alone: bool = True
    ) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        # All captures share one stream, because libraries keep a workspace for every stream.
        self._stream = torch.cuda.Stream(device) if stream is None else stream
        self._gives_back = alone
        self._warm: set[object] = set()

    def __call__(
        self, compute: Callable[[], T], warm_up: Callable[[], object] | None = None
    ) -> CapturedGraph[T]:
        return self._captured(compute, warm_up, runs=True)

    def unrun(self, compute: Callable[[], T]) -> CapturedGraph[T]:
        """Capture a call while other work uses its memory; it has no result before a replay."""
        if self._first_of(_set_libraries_up):
            with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
                _set_libraries_up(self._device)
        return self._captured(compute, None, runs=False)

    def _captured(
        self, compute: Callable[[], T], warm_up: Callable[[], object] | None, runs: bool
    ) -> CapturedGraph[T]:
        with torch.cuda.device(self._device):
            graph, result = self._capture(compute, (warm_up or compute) if runs else None)

        def replay() -> None:
            with torch.cuda.device(self._device):
                graph.replay()

        if runs and warm_up is None:  # A capture computes nothing, and the next graph may need this result.
            replay()
        return CapturedGraph(replay, result, compute)

    def _capture(
        self, compute: Callable[[], T], warm_up: Callable[[], object] | None
    ) -> tuple[torch.cuda.CUDAGraph, T]:
        self._stream.wait_stream(torch.cuda.current_stream())
        if warm_up is not None and self._first_of(compute):
            with torch.cuda.stream(self._stream):
                warm_up()
        if warm_up is not None and self._gives_back:
            # Captures come largest first, so later ones warm up within the memory of the first.
            give_back(self._device)
            self._gives_back = False
        graph = torch.cuda.CUDAGraph()
        with ONE_AT_A_TIME, uncollected(), torch.cuda.stream(self._stream):
            # A kernel may have to be loaded first.
            graph.capture_begin(self._pool, capture_error_mode="relaxed")
            try:
                result = compute()
            finally:
                self._end(graph)
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph, result

    def _end(self, graph: torch.cuda.CUDAGraph) -> None:
        """End a capture; after a failure the allocator must be told that it is over."""
        try:
            graph.capture_end()
        except BaseException:
            # Otherwise it would allocate for the capture without end, and could never free memory.
            with suppress(AttributeError, RuntimeError):  # Some versions lack the function.
                torch._C._cuda_endAllocateToPool(self._device.index or 0, self._pool)
            raise

    def _first_of(self, compute: Callable[..., object]) -> bool:
        """Whether no other capture has used this code yet."""
        code = getattr(compute, "__code__", compute)
        known = code in self._warm
        self._warm.add(code)
        return not known


def _set_libraries_up(device: torch.device) -> None:
    """Run a few operations of every network: libraries keep a workspace for each thread and stream."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.ones(16, 16, device=device, dtype=dtype)
        torch.nn.functional.linear(x @ x, x, x[0])
    torch.cuda.current_stream(device).synchronize()


def give_back(device: torch.device) -> None:
    """Wait for all work of a GPU and return unused memory, while nothing is captured."""
    with ONE_AT_A_TIME:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


class PacedCapture:
    """Captures, and calls ``rest`` after each capture, which returns when the next one may begin."""

    def __init__(self, capture: GraphCapture, rest: Callable[[], None]) -> None:
        self._capture, self._rest = capture, rest

    def __call__(
        self, compute: Callable[[], T], warm_up: Callable[[], object] | None = None
    ) -> ReplayedGraph[T]:
        graph = self._capture(compute, warm_up)
        self._rest()
        return graph


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause Python's garbage collector: if it freed an old graph, that would end the capture."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class GraphOnParts(Generic[T]):
    """A computation captured several times; ``which`` graph is replayed, or the last for one that is
    missing."""

    def __init__(self, graphs: Sequence[ReplayedGraph[T]], which: Callable[[], int]) -> None:
        self._graphs, self._which = [*graphs], which
        self._replayed = graphs[0]

    def add(self, graph: ReplayedGraph[T]) -> None:
        """Append a graph."""
        self._graphs.append(graph)

    def replay(self) -> None:
        self._replayed = self._graphs[min(self._which(), len(self._graphs) - 1)]
        self._replayed.replay()

    @property
    def result(self) -> T:
        return self._replayed.result


class CaptureOnParts:
    """Captures for a whole GPU and for partitions of it, and replays on one of them.

    Whoever changes from one to another sees to it that replays follow each other.

    Args:
        which: the number of the capture whose graph is replayed.
    """

    def __init__(self, captures: Sequence[GraphCapture], which: Callable[[], int]) -> None:
        self._captures, self._which = captures, which
        self._made: list[tuple[GraphOnParts[Any], Callable[[], Any]]] = []
        self._ended = False

    def __call__(
        self, compute: Callable[[], T], warm_up: Callable[[], object] | None = None
    ) -> GraphOnParts[T]:
        graph = GraphOnParts([capture(compute, warm_up) for capture in self._captures], self._which)
        self._made.append((graph, compute))
        return graph

    def add(self, capture: CudaGraphCapture, rest: Callable[[], None]) -> None:
        """Capture everything on one more partition while others replay; ``rest`` runs after each graph."""
        for graph, compute in self._made:
            if self._ended:
                return
            graph.add(capture.unrun(compute))
            rest()

    def end(self) -> None:
        """End all captures: nothing is replayed any more."""
        self._ended = True


class EagerCalls:
    """Counts the calls that no captured graph fits; each takes several times longer."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, reason: str) -> None:
        """Count a call; the first one is logged with its reason."""
        if not self.count:
            logger.warning("calls run without CUDA graphs, several times slower: %s", reason)
        self.count += 1


def split_rows(rows: Sequence[T], max_rows: int) -> Iterator[Sequence[T]]:
    """Split rows into batches of at most ``max_rows``."""
    return (rows[start : start + max_rows] for start in range(0, len(rows), max_rows))


def split_graph_rows(rows: Sequence[T], fits: Callable[[T], bool], max_rows: int) -> Iterator[Sequence[T]]:
    """Group rows into one batch for each call; those too large for a graph run eagerly, in one batch."""
    yield from split_rows([row for row in rows if fits(row)], max_rows)
    eager = [row for row in rows if not fits(row)]
    if eager:
        yield eager


def attend_unplanned() -> None:
    """Disable cuDNN's attention, which plans each new size for tens of ms.

    PyTorch prefers it on Hopper. Planning was two fifths of the time in which calls are captured on an H200,
    and a prompt of a length that no captured call has would wait for it. The other kernels (flash,
    memory-efficient) plan nothing.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
