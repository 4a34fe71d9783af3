"""Work of a GPU in CUDA graphs, and the time of a replay."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor


def replayed(compute: Callable[[], object], stream: torch.cuda.Stream | None = None) -> torch.cuda.CUDAGraph:
    """The computation as a CUDA graph, captured in a stream: of a part of the GPU, it runs there."""
    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        compute()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        compute()
    return graph


def milliseconds(replay: Callable[[], None], repeats: int) -> float:
    """Median time on the GPU."""
    times = []
    for turn in range(repeats + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        replay()
        end.record()
        end.synchronize()
        if turn >= 3:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def distance(x: Tensor, reference: Tensor) -> float:
    """``|x - reference| / |reference|``."""
    return float((x - reference).norm() / reference.norm())
