"""Values of several kinds that are copied to a device in one transfer."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.gpu.transfer import move, on_gpu, wait_for

ALIGNED = 8
"""The alignment of each kind in bytes, which is the size of the largest number."""
Kind = tuple[Sequence[int], torch.dtype]
"""The shape and type of a value."""


class Parcel:
    """Device memory for values of several kinds, which one copy overwrites.

    A transfer costs the host as much as a kernel, whatever its size, and with it its hold of Python.

    Args:
        kinds: shapes and types of the values; those that a transfer may omit are last.
        again: whether values are sent repeatedly; a GPU then keeps pinned memory for them.

    Attributes:
        tensors: the values on the device, zeros at first.
    """

    def __init__(self, device: torch.device, kinds: Sequence[Kind], again: bool) -> None:
        self._kinds, self._starts = kinds, _starts(kinds)
        self._memory = torch.zeros(self._starts[-1], dtype=torch.uint8, device=device)
        self.tensors = _cut(self._memory, kinds, self._starts)
        self._on_gpu = on_gpu(device)
        self._boxes: deque[_Box] = deque()
        if self._on_gpu and again:
            # One box is written while the copy from the other waits for the device.
            self._boxes.extend(_Box(self._memory, kinds, self._starts) for _ in range(2))
        self._arrays: list[npt.NDArray[Any]] = []

    def host(self) -> list[npt.NDArray[Any]]:
        """The host memory of the values, which still holds earlier ones."""
        if self._boxes:
            return self._boxes[0].emptied()
        if not self._arrays:
            host = torch.zeros(len(self._memory), dtype=torch.uint8) if self._on_gpu else self._memory
            self._host = host
            self._arrays = [values.numpy() for values in _cut(host, self._kinds, self._starts)]
        return self._arrays

    def send(self, whole: int, rows: int = 0) -> None:
        """Copy the values to the device, in order with its work.

        Args:
            whole: number of leading kinds that are copied whole.
            rows: rows, on axis 0, of the kind after them.
        """
        if not self._on_gpu:
            return
        end = self._starts[whole]
        if rows:
            shape, dtype = self._kinds[whole]
            end += rows * math.prod(shape[1:]) * dtype.itemsize
        if self._boxes:
            self._boxes[0].send(end)
            self._boxes.rotate()
        else:
            move(self._host[:end], self._memory[:end])


class _Box:
    """Pinned memory from which values are copied."""

    def __init__(self, target: Tensor, kinds: Sequence[Kind], starts: Sequence[int]) -> None:
        self._target = target
        self._memory = torch.zeros(len(target), dtype=torch.uint8, pin_memory=True)
        self._arrays = [values.numpy() for values in _cut(self._memory, kinds, starts)]
        self._left = torch.cuda.Event()
        self._parts: dict[int, tuple[Tensor, Tensor]] = {}

    def emptied(self) -> list[npt.NDArray[Any]]:
        """The memory, as soon as its last copy has ended."""
        wait_for(self._left)
        return self._arrays

    def send(self, end: int) -> None:
        """Copy the bytes before this offset."""
        if end not in self._parts:
            self._parts[end] = self._target[:end], self._memory[:end]
        target, memory = self._parts[end]
        target.copy_(memory, non_blocking=True)
        self._left.record(torch.cuda.current_stream(target.device))


def _starts(kinds: Sequence[Kind]) -> list[int]:
    """The byte offset of each kind, and the end of the last one."""
    starts = [0]
    for shape, dtype in kinds:
        nbytes = math.prod(shape) * dtype.itemsize
        starts.append(starts[-1] + -(-nbytes // ALIGNED) * ALIGNED)
    return starts


def _cut(memory: Tensor, kinds: Sequence[Kind], starts: Sequence[int]) -> list[Tensor]:
    """Views of the memory as values of these kinds."""
    return [
        memory[start : start + math.prod(shape) * dtype.itemsize].view(dtype).view(*shape)
        for (shape, dtype), start in zip(kinds, starts, strict=False)
    ]
