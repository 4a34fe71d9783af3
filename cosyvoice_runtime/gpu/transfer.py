"""Transfers of small values between host and device, and the memory that they use."""

from __future__ import annotations

import math
import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

STAGED_BYTES = 2**16
"""The most bytes of values that use existing staging memory; larger values get their own."""
STAGES = 32
"""The transfers that may be in flight from a thread's staging memory before it waits for the oldest."""
LANDED_BYTES = 2**12
"""The size of the smallest memory for arriving values; it and its doublings are kept for reuse."""
MOST_LANDED_BYTES = 2**24
"""The size of the largest memory that is kept; larger values get memory of their own, which is not kept."""
MOST_VIEWS = 256
"""The most views of a piece of pinned memory that are kept."""
ALIGNED = 8
"""The alignment of each kind in bytes, which is the size of the largest number."""
Kind = tuple[Sequence[int], torch.dtype]
"""The shape and type of a value."""


def on_gpu(device: torch.device) -> bool:
    """Whether a device runs asynchronously and gets its values from pinned memory."""
    return device.type == "cuda"


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a host tensor to the device, in order with the device's work."""
    if not on_gpu(device):
        return tensor.to(device)
    target = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
    move(tensor, target)
    return target


def move(tensor: Tensor, target: Tensor) -> None:
    """Overwrite a device tensor with a host tensor, in order with the device's work.

    From pinned memory: a copy from elsewhere waits until the GPU has done all that it was given.

    Args:
        target: a contiguous tensor.
    """
    if not on_gpu(target.device):
        target.copy_(tensor)
    elif tensor.nbytes > STAGED_BYTES:
        target.copy_(tensor.pin_memory(), non_blocking=True)
    else:
        _threads.stage(target.device).send(tensor, target)


def integers(values: Sequence[int], device: torch.device) -> Tensor:
    """Integers as an int64 tensor ``[n]`` on the device."""
    return moved(torch.tensor(values, dtype=torch.int64), device)


def shared_with_host(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, npt.NDArray[Any]]:
    """Zeros in memory of the host that a device's kernels write, without a copy.

    What work has written is there when an event behind it has been reached.

    Returns:
        the same memory as a tensor of the device and as an array.
    """
    if not on_gpu(device):
        array = torch.zeros(tuple(shape), dtype=dtype).numpy()
        return torch.from_numpy(array).to(device), array
    with torch.cuda.device(device):  # It belongs to a device, as its tensor does.
        host = _pinned(math.prod(shape) * dtype.itemsize)
    array = host.view(dtype).view(*shape).numpy()
    array[...] = 0
    return torch.as_tensor(_Mapped(host, array)), array  # To name the device could make a copy.


class _Mapped:
    """Pinned memory as something of the device's: both have one address space (CUDA's unified addressing).

    Args:
        host: the memory, which lasts as long as tensors made from this.
    """

    def __init__(self, host: Tensor, array: npt.NDArray[Any]) -> None:
        self._host = host
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (host.data_ptr(), False),
            "version": 3,
        }


class _Pinned:
    """Pinned memory that small values of all types use repeatedly.

    Each operation of torch lets other threads have Python, which takes long to get back: views are kept, and
    what the host does is done in numpy, where that knows the type.
    """

    def __init__(self, memory: Tensor) -> None:
        self._memory = memory
        self._views: dict[tuple[torch.dtype, torch.Size], _View] = {}

    def view(self, like: Tensor) -> _View:
        """The start of the memory as a tensor of this type and shape, and as an array."""
        found = self._views.get((like.dtype, like.shape))
        if found is None:
            if len(self._views) >= MOST_VIEWS:
                self._views.clear()
            with torch.inference_mode(False):  # Otherwise it could not be written outside of inference mode.
                host = self._memory[: like.nbytes].view(like.dtype).view(like.shape)
            found = self._views[like.dtype, like.shape] = _View(host, _array(host))
        return found


class _View(NamedTuple):
    """A view of pinned memory.

    Attributes:
        array: the array of this memory; None for types that numpy lacks, such as bfloat16.
    """

    tensor: Tensor
    array: npt.NDArray[Any] | None


def _array(tensor: Tensor) -> npt.NDArray[Any] | None:
    return None if tensor.dtype is torch.bfloat16 else tensor.numpy()


def _pinned(*size: int) -> Tensor:
    """Bytes that may be written inside and outside of inference mode."""
    with torch.inference_mode(False):
        return torch.empty(*size, dtype=torch.uint8, pin_memory=True)


class _Stage:
    """Pinned staging memory for small values, of one thread and one device.

    To allocate it for each transfer takes up to a millisecond, and makes other threads' allocations wait.
    """

    def __init__(self) -> None:
        self._places = [_Pinned(row) for row in _pinned(STAGES, STAGED_BYTES)]
        self._left = [torch.cuda.Event() for _ in range(STAGES)]
        self._next = 0

    def send(self, tensor: Tensor, target: Tensor) -> None:
        place = self._next
        self._next = (place + 1) % STAGES
        wait_for(self._left[place])
        host, array = self._places[place].view(tensor)
        if array is None:
            host.copy_(tensor)
        else:
            array[...] = tensor.numpy()
        target.copy_(host, non_blocking=True)
        self._left[place].record(torch.cuda.current_stream(target.device))


class _Threads(threading.local):
    """The staging memory of each thread."""

    def __init__(self) -> None:
        self._stages: dict[torch.device, _Stage] = {}

    def stage(self, device: torch.device) -> _Stage:
        if device not in self._stages:
            self._stages[device] = _Stage()
        return self._stages[device]


_threads = _Threads()


def wait_for(event: torch.cuda.Event) -> None:
    """Wait until a device has reached an event.

    Waiting lets other threads have Python, which takes long to get back; asking does not.
    """
    if not event.query():
        event.synchronize()


class Fetch:
    """A copy from device to host in progress; the host may do other work until it needs the values.

    Args:
        values: the device's values, of a type that numpy knows, after all work given to the device so far.
    """

    def __init__(self, values: Tensor) -> None:
        self._landing: _Landing | None = None
        self._copy: npt.NDArray[Any]
        if on_gpu(values.device):
            self._landing = _landing(values)
            self._landing.receive(values)
        else:
            self._copy = values.clone().numpy()

    def array(self) -> npt.NDArray[Any]:
        """Wait for the values and return them."""
        if self._landing is not None:
            self._copy = self._landing.taken()
            self._landing = None
        return self._copy


class _Landing:
    """Pinned memory in which values of one device arrive."""

    def __init__(self, nbytes: int, device: torch.device) -> None:
        self._size = nbytes
        self._memory = _Pinned(_pinned(nbytes))
        self._arrived = torch.cuda.Event()  # The event is bound to the device when it is first recorded.
        self._device = device
        self._values: npt.NDArray[Any] = np.zeros(0)

    def receive(self, values: Tensor) -> None:
        here, array = self._memory.view(values)
        if array is None:
            raise TypeError(f"values of {values.dtype} can't be fetched as an array")
        self._values = array
        here.copy_(values, non_blocking=True)
        self._arrived.record(torch.cuda.current_stream(values.device))

    def taken(self) -> npt.NDArray[Any]:
        """The arrived values; memory that is kept becomes free for reuse."""
        wait_for(self._arrived)
        if self._size > MOST_LANDED_BYTES:
            return self._values
        values = np.array(self._values)
        _landings[self._device, self._size].append(self)
        return values


_landings: defaultdict[tuple[torch.device, int], deque[_Landing]] = defaultdict(deque)
"""The free memory of each device and size."""


def _landing(values: Tensor) -> _Landing:
    if values.nbytes > MOST_LANDED_BYTES:
        return _Landing(values.nbytes, values.device)
    size = max(LANDED_BYTES, 1 << (values.nbytes - 1).bit_length())
    try:
        return _landings[values.device, size].pop()
    except IndexError:
        return _Landing(size, values.device)


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
            on_host = self._memory.is_cpu and not self._on_gpu
            host = self._memory if on_host else torch.zeros(len(self._memory), dtype=torch.uint8)
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


def untouched_zeros(*shape: int, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Make zeros like ``torch.zeros``, for stores that are sized for the maximum and mostly hold less.

    ``torch.zeros`` writes every byte; numpy asks the system for pages that are zero when they are first read.
    """
    if torch.device(device).type != "cpu" or 0 in shape:
        return torch.zeros(shape, device=device, dtype=dtype)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(shape)
