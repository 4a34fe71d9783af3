"""A stand-in for CUDA graphs on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from cosyvoice_runtime.gpu.cuda_graphs import CapturedGraph

T = TypeVar("T")


def play_back(
    compute: Callable[[], torch.Tensor], warm_up: Callable[[], object] | None = None
) -> CapturedGraph[torch.Tensor]:
    """Captures by keeping the computation: the same memory in, the same memory out."""
    if warm_up is not None:
        warm_up()
    result = compute()
    return CapturedGraph(lambda: result.copy_(compute()), result, compute)


class ComputedAgain:
    """Captures nothing: a replay computes on the same memory and leaves the result in the same place.

    For what cannot be traced.
    """

    def __init__(self) -> None:
        self.warm_ups = 0

    def __call__(
        self, compute: Callable[[], T], warm_up: Callable[[], object] | None = None
    ) -> CapturedGraph[T]:
        if warm_up is not None:
            warm_up()
            self.warm_ups += 1
        result = compute()
        return CapturedGraph(compute, result, compute)


FAR = 2**40
"""No index of anything."""


class TracingCapture:
    """Traces the operations of a computation with the memory they used and replays just these.

    As with a CUDA graph, what the host decided or computed while capturing stays as it was, reading a
    tensor on the host is an error, and a replay overwrites the results of graphs captured later. As with
    `CudaGraphCapture`, only the first of each code has run before.
    """

    WARM_UPS = 2

    def __init__(self) -> None:
        self.replays = 0
        self._warm: set[object] = set()
        self._results: list[object] = []

    def __call__(
        self, compute: Callable[[], T], warm_up: Callable[[], object] | None = None
    ) -> CapturedGraph[T]:
        code = getattr(compute, "__code__", compute)
        for _ in range(0 if code in self._warm else self.WARM_UPS):
            (warm_up or compute)()
        self._warm.add(code)
        traced = make_fx(lambda: list(tensors(compute())))()
        result = compute()
        self._results.append(result)
        later = len(self._results)

        def replay() -> None:
            self.replays += 1
            for spoilt in tensors(self._results[later:]):
                spoilt.fill_(torch.nan if spoilt.is_floating_point() else FAR)
            for kept, new in zip(tensors(result), traced(), strict=True):
                kept.copy_(new)

        replay()
        self.replays -= 1  # of those that the test asked for
        return CapturedGraph(replay, result, compute)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """All in nested dataclasses and sequences."""
    if isinstance(value, torch.Tensor):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors(part)
