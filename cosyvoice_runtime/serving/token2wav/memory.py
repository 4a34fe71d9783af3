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
MIB, GIB = 2**20, 2**30
GPU_WORK_BYTES = 6 * GIB
"""Of a GPU's free memory, what the pages leave for CUDA graphs (measured: 4 to 6 GB with batches of 16) and
for calls that none holds."""
TYPICAL_S = 15.0
"""A reference of five seconds and ten seconds of speech, to tell what the pages are good for."""


def page_count(flow: Flow, max_pages: int, memory_share: float) -> int:
    """Pages that the device has room for, at most ``max_pages``."""
    page_bytes = PagePool(flow, 0).page_bytes
    count = min(max_pages, room(flow.device, memory_share) // page_bytes)
    seconds = count * flow.config.encoder.chunk_tokens / flow.config.token_rate
    logger.info(
        "flow: %d pages of %.1f MiB hold %.0f s of prompts and speech, about %d utterances of %.0f s",
        count,
        page_bytes / MIB,
        seconds,
        seconds // TYPICAL_S,
        TYPICAL_S,
    )
    if count == 0:
        logger.warning("flow: no page fits into the memory; every chunk recomputes those before it")
    return count


def room(device: torch.device, share: float) -> int:
    """Bytes for pages: a share of the device's memory, and on a GPU no more than is free beside the work.

    The share is of all memory: unless the GPU is crowded, the number doesn't depend on who loads first.
    """
    if device.type != "cuda":
        return int(share * machine_memory())
    free, total = torch.cuda.mem_get_info(device)
    wanted, left = int(share * total), max(0, free - GPU_WORK_BYTES)
    if left < wanted:
        logger.warning(
            "flow: %.1f of the %.1f GiB of %s are free, too few for flow_memory_share=%g: pages get %.1f GiB",
            free / GIB,
            total / GIB,
            device,
            share,
            left / GIB,
        )
    return min(wanted, left)


def machine_memory() -> int:
    """Bytes of this machine or container."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else "max"
    return machine if limit == "max" else min(machine, int(limit))
