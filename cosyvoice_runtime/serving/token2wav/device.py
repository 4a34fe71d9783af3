"""The device that a thread works on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def as_current(device: torch.device) -> AbstractContextManager[object]:
    """Context in which a GPU is the calling thread's own.

    Tensors say where they are; streams, graphs and TensorRT work on the thread's GPU, which is the first one
    unless told otherwise.
    """
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
