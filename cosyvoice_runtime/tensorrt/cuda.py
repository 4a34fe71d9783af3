"""What engines need of CUDA, and the GPU that they are built for; tests without a GPU stand in for both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch

from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.gpu.cuda_graphs import uncollected

FIRST = torch.device("cuda", 0)


class Gpu(NamedTuple):
    """Name as CUDA gives it, and compute capability (``"9.0"``)."""

    name: str
    compute_capability: str


def present_gpu(device: torch.device = FIRST) -> Gpu:
    """A GPU that this process sees.

    Raises:
        EngineFileError: it sees none.
    """
    if not torch.cuda.is_available():
        raise EngineFileError("this process sees no GPU")
    properties = torch.cuda.get_device_properties(device)
    return Gpu(properties.name, f"{properties.major}.{properties.minor}")


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
