"""What a GPU's memory is divided into: other processes, calls of token2wav, and pages of finished speech."""

from __future__ import annotations

GIB = 2**30
SMALL_BATCH, MEDIUM_BATCH = 8, 16
WORK_BYTES, MEDIUM_WORK_BYTES, LARGE_WORK_BYTES = 6 * GIB, 9 * GIB, 12 * GIB
"""Of a GPU's free memory, what the pages leave for CUDA graphs and for calls that none holds: with batches of
up to 8 (measured: 2 to 3 GB of graphs), of up to 16 (4 to 6), and of more (not measured)."""
LARGE_GPU_BYTES = 40 * GIB
"""Memory of a GPU from which turns have more."""
OWN_BYTES = 2 * GIB
"""What token2wav's process holds of a GPU when it plans: the driver's context, weights, and what loading
left."""


def work_bytes(rows: int, divisions: int = 1) -> int:
    """Of a GPU, what captured calls of up to so many utterances take, and what runs beside them.

    Args:
        divisions: of the GPU, each with calls of its own.
    """
    if rows <= SMALL_BATCH:
        return WORK_BYTES * divisions
    return (MEDIUM_WORK_BYTES if rows <= MEDIUM_BATCH else LARGE_WORK_BYTES) * divisions


def rows_on(total_bytes: int, most: int) -> int:
    """Utterances in a turn, at most ``most``: fewer where the memory is better spent on pages."""
    return min(most, SMALL_BATCH) if total_bytes < LARGE_GPU_BYTES else most


def unclaimed_bytes(total_bytes: int, reserve_gib: float) -> int:
    """Of a GPU, what nobody holds when the pages are planned.

    Args:
        reserve_gib: what other processes take before or after.
    """
    return total_bytes - int(reserve_gib * GIB) - OWN_BYTES


def room_for_pages(total_bytes: int, free_bytes: int, share: float, work: int) -> int:
    """Bytes: a share of the memory, and no more than the work leaves of what is free."""
    return min(int(share * total_bytes), max(0, free_bytes - work))
