"""How many pages of finished chunks a device has room for."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

from cosyvoice_runtime.flow.flow import Flow
from cosyvoice_runtime.flow.pages import PagePool

logger = logging.getLogger(__name__)

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
MIB = 2**20


def page_count(flow: Flow, max_pages: int, memory_share: float) -> int:
    """Pages that fit into a share of the device's memory, at most ``max_pages``.

    The share is of all memory, not of what is free now: the number doesn't depend on what else is loading.
    """
    page_bytes = PagePool(flow, 0).page_bytes
    count = min(max_pages, int(memory_share * total_memory(flow.device)) // page_bytes)
    logger.info("flow: %d pages of %.1f MiB", count, page_bytes / MIB)
    if count == 0:
        logger.warning("flow: no page fits into the memory; every chunk recomputes those before it")
    return count


def total_memory(device: torch.device) -> int:
    """Bytes of the device, or of this machine or container for the CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else "max"
    return machine if limit == "max" else min(machine, int(limit))
