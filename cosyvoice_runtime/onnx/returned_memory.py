"""An array in parts whose memory the system gets back while nobody needs them."""

from __future__ import annotations

import math
from contextlib import suppress
from mmap import MADV_DONTNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from typing import Any

import numpy as np
import numpy.typing as npt


class ReturnedMemory:
    """Zeros that take memory when they are written, and give it back part by part.

    Args:
        shape: of the array; its first axis counts the parts.
        in_one: a part is written as a whole, so that the system may give it memory in large pieces.

    Attributes:
        array: of that shape; valid as long as this object.
    """

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike, in_one: bool) -> None:
        self._part_bytes = math.prod(shape[1:]) * np.dtype(dtype).itemsize
        size = shape[0] * self._part_bytes
        # An anonymous map can't be empty, and what is shared would not be given back.
        self._map = mmap(-1, max(size, 1), flags=MAP_PRIVATE | MAP_ANONYMOUS)
        with suppress(OSError):  # of a kernel without huge pages
            self._map.madvise(MADV_HUGEPAGE if in_one else MADV_NOHUGEPAGE)
        self.array: npt.NDArray[Any] = np.frombuffer(self._map, dtype, math.prod(shape)).reshape(shape)

    def give_back(self, part: int) -> None:
        """Lose the content of a part, and its memory, but for what lies in system pages of its neighbours."""
        start = -(-part * self._part_bytes // PAGESIZE) * PAGESIZE
        end = (part + 1) * self._part_bytes // PAGESIZE * PAGESIZE
        if end > start:
            self._map.madvise(MADV_DONTNEED, start, end - start)
