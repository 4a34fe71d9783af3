"""What engines need of CUDA; one place, so that tests without a GPU can stand in for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from cosyvoice_runtime.cuda_graphs import uncollected


class Cuda:
    """Streams and graphs of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def current(self) -> AbstractContextManager[object]:
        """Context in which this device is the calling thread's own.

        TensorRT builds, loads and runs on the thread's GPU, which is the first one unless told otherwise
        (TensorRT's ``NvInferRuntime.h``, ``IRuntime``; ``NvInfer.h``, ``IBuilder``).
        """
        return torch.cuda.device(self.device)

    def current_stream(self) -> Any:
        return torch.cuda.current_stream(self.device)

    def new_stream(self) -> Any:
        return torch.cuda.Stream(self.device)

    def on(self, stream: Any) -> Any:
        """Context in which tensors are copied and allocated on a stream."""
        return torch.cuda.stream(stream)

    def capture(self, stream: Any, work: Callable[[], None]) -> Any:
        """A graph of what ``work`` enqueues; it is not run."""
        graph = torch.cuda.CUDAGraph()
        with uncollected(), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            work()
        return graph
