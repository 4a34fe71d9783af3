"""The device that a thread works on, and its stream there."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def as_current(device: torch.device) -> AbstractContextManager[object]:
    """Context in which a GPU is the calling thread's own.

    Tensors say where they are; streams, graphs and TensorRT work on the thread's GPU, which is the first one
    unless told otherwise.
    """
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def on_own_stream(
    device: torch.device, stream: torch.cuda.Stream | None = None
) -> AbstractContextManager[object]:
    """The same, and a GPU's work goes into a stream of its own: threads that share one wait for each other.

    What other threads gave to the GPU before has to be done.

    Args:
        stream: that of a part of the GPU.
    """
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device) if stream is None else stream)
