"""Small values from the host to a device, and back."""

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


class Upload:
    """Values that a device gets at one place again and again.

    Args:
        target: where they go, rows on axis 0. On a CPU it is written directly.
    """

    def __init__(self, target: Tensor) -> None:
        self._target = target
        self._on_gpu = target.device.type == "cuda"
        self._host = (
            torch.zeros(target.shape, dtype=target.dtype, pin_memory=True) if self._on_gpu else target
        )
        self._sent: torch.cuda.Event | None = None

    def host(self) -> Tensor:
        """Where to write; waits until what was sent last has left."""
        if self._sent is not None:
            self._sent.synchronize()
        return self._host

    def send(self, rows: int) -> None:
        """Let the first rows go, in order with the device's work."""
        if self._on_gpu:
            self._target[:rows].copy_(self._host[:rows], non_blocking=True)
            self._sent = torch.cuda.current_stream(self._target.device).record_event()


class Fetch:
    """A copy of a device's values on its way to the host, which may do something else until it wants them.

    Args:
        values: as they are when the device has done all that it was given before.
    """

    def __init__(self, values: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        if values.device.type != "cuda":
            self._copy = values.clone()
            return
        self._copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self._copy.copy_(values, non_blocking=True)
        self._arrived = torch.cuda.current_stream(values.device).record_event()

    def wait(self) -> Tensor:
        """The values, once they are here."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._copy
