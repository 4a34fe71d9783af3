"""Memory of ONNX Runtime's sessions and of numpy's arrays, and how it goes back to the system."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from mmap import MADV_DONTNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import onnxruntime


LIBC = "libc.so.6"
IN_POWERS_OF_TWO = 0
"""How the arena grows, as by default. As much as is asked for (1) leaves pieces that nothing fits."""
_registering = threading.Lock()


def share_arena(options: onnxruntime.SessionOptions) -> None:
    """Have a session take what it computes with from the process's arena.

    With an arena of its own each session would keep its largest call's memory while the others compute.
    """
    with _registering:
        _register_arena()
    options.add_session_config_entry("session.use_env_allocators", "1")


def giving_back_arena() -> onnxruntime.RunOptions:
    """For a run after which the arena keeps only those of its pieces that something lies in."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def give_back_heap() -> None:
    """Return freed memory to the system, where the C library can: loading frees as much as a network has."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _register_arena() -> None:
    import onnxruntime

    arena = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    memory = onnxruntime.OrtMemoryInfo("Cpu", arena, 0, onnxruntime.OrtMemType.DEFAULT)
    growth = onnxruntime.OrtArenaCfg({"arena_extend_strategy": IN_POWERS_OF_TWO})
    onnxruntime.create_and_register_allocator(memory, growth)


@cache
def _trim() -> ctypes._NamedFuncPointer | None:
    """``malloc_trim`` of glibc; other C libraries have none."""
    try:
        return ctypes.CDLL(LIBC).malloc_trim
    except (OSError, AttributeError):
        return None


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


MAPS = Path("/proc/self/smaps")
FIELDS = 6
"""Fields of a mapping's first line, the last one the file, maybe with spaces; sizes follow, one a line."""


class Mapping(NamedTuple):
    """Addresses of this process that are a file's.

    Attributes:
        resident: bytes that lie in memory.
        own: how many of them are no longer the file's, because they were written.
    """

    start: int
    end: int
    resident: int
    own: int


def forget_mapped(*paths: Path) -> None:
    """Take files' pages out of this process's memory; what is read again comes back from them.

    A session reads all weights once, to lay out those of products in memory of its own, and some of them,
    as the scales of weights in 8 bits, never again. Any threads may read them meanwhile.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for mapping in mappings(*paths):
        if mapping.resident and not mapping.own:
            madvise(mapping.start, mapping.end - mapping.start, MADV_DONTNEED)


def mappings(*paths: Path) -> list[Mapping]:
    """Mappings of files."""
    wanted = {str(path.resolve()) for path in paths}
    return [mapping for name, mapping in _all_mappings() if name in wanted]


def _all_mappings() -> Iterator[tuple[str, Mapping]]:
    name, start, end, sizes = "", 0, 0, {}
    for line in MAPS.read_text().splitlines():
        key, *values = line.split(maxsplit=FIELDS - 1)
        if key.endswith(":"):
            sizes[key] = values[0]
            if key == "Anonymous:":
                resident, own = (1024 * int(sizes[each]) for each in ("Rss:", key))
                yield name, Mapping(start, end, resident, own)
        else:
            start, end = (int(address, 16) for address in key.split("-"))
            name = values[-1] if len(values) == FIELDS - 1 else ""
