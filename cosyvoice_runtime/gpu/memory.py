"""The memory of a GPU that this process may use."""

from __future__ import annotations

import torch

GIB = 2**30

_limits: dict[int, int] = {}
"""Bytes of a GPU by its number, where they are fewer than it has."""


def limit_memory(device: str, gib: float) -> None:
    """Use a GPU as if it had no more memory than so much; it must have had no tensors yet."""
    place = torch.device("cuda", torch.device(device).index or 0)
    total = torch.cuda.get_device_properties(place).total_memory
    limit = int(gib * GIB)
    if limit < total:
        _limits[place.index] = limit
        torch.cuda.set_per_process_memory_fraction(limit / total, place)


def free_and_total(device: torch.device) -> tuple[int, int]:
    """Free and all bytes of a GPU, as far as this process may use them."""
    free, total = torch.cuda.mem_get_info(device)
    limit = _limits.get(device.index or 0, total)
    return max(0, limit - (total - free)), limit
