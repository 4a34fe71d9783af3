"""Small values from the host to a device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device, in order with the device's work.

    From pinned memory: a copy from elsewhere waits until the GPU has done all that it was given.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def integers(values: Sequence[int], device: torch.device) -> Tensor:
    """[n] int64 on the device."""
    return moved(torch.tensor(values, dtype=torch.int64), device)
