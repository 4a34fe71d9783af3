"""Memory of ONNX Runtime's sessions in a process: an arena for all, and what goes back of it and the heap."""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import TYPE_CHECKING

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
