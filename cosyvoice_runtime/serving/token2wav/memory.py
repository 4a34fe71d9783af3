"""How many pages of finished chunks a device has room for."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

from cosyvoice_runtime.flow.flow import Flow
from cosyvoice_runtime.flow.pages import PagePool
from cosyvoice_runtime.kernels.choice import solver_obstacle
from cosyvoice_runtime.settings import Token2WavSettings

logger = logging.getLogger(__name__)

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
MIB, GIB = 2**20, 2**30
SMALL_BATCH, MEDIUM_BATCH = 8, 16
WORK_BYTES, MEDIUM_WORK_BYTES, LARGE_WORK_BYTES = 6 * GIB, 9 * GIB, 12 * GIB
"""Of a GPU's free memory, what the pages leave for CUDA graphs and for calls that none holds: with batches of
up to 8 (measured: 2 to 3 GB of graphs), of up to 16 (4 to 6), and of more (not measured)."""
LARGE_GPU_BYTES = 40 * GIB
"""Memory of a GPU from which turns have more."""
OWN_BYTES = 2 * GIB
"""What this process holds of a GPU when it plans: the driver's context, weights, and what loading left."""
TYPICAL_S = 15.0
"""A reference of five seconds and ten seconds of speech, to tell what the pages are good for."""


def page_count(flow: Flow, settings: Token2WavSettings) -> int:
    """Pages that the settings allow and the flow's device has room for."""
    page_bytes = PagePool(flow, 0).page_bytes
    work = work_bytes(turn_rows(flow, settings))
    bytes_ = room(flow.device, settings.most_flow_memory, settings.gpu_reserve_gib, work)
    count = min(settings.most_flow_pages, bytes_ // page_bytes)
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


def work_bytes(rows: int) -> int:
    """Of a GPU, what captured calls of up to so many utterances take, and what runs beside them."""
    if rows <= SMALL_BATCH:
        return WORK_BYTES
    return MEDIUM_WORK_BYTES if rows <= MEDIUM_BATCH else LARGE_WORK_BYTES


def turn_rows(flow: Flow, settings: Token2WavSettings) -> int:
    """Most utterances in a turn: fewer than ``max_batch`` where the memory is better spent on pages.

    Plain modules gain little from more than 16, and take more memory for them.
    """
    rows = settings.most_batch
    if flow.device.type != "cuda" or settings.backend != "torch":
        return rows
    if torch.cuda.mem_get_info(flow.device)[1] < LARGE_GPU_BYTES:
        rows = min(rows, SMALL_BATCH)
    if not settings.cuda_graphs or settings.kernels == "plain" or _plain_alone(flow):
        rows = min(rows, MEDIUM_BATCH)
    return rows


def _plain_alone(flow: Flow) -> bool:
    return solver_obstacle(flow.device, flow.dtype, flow.config.blockwise) is not None


def room(device: torch.device, share: float, reserve_gib: float = 0.0, work_bytes: int = WORK_BYTES) -> int:
    """Bytes for pages: a share of the device's memory, and on a GPU no more than is left beside the work.

    Args:
        reserve_gib: of a GPU, what other processes take before or after; so the number doesn't depend on who
            loads first.
        work_bytes: of a GPU, what this process still needs beside the pages.
    """
    if device.type != "cuda":
        return int(share * machine_memory())
    free, total = torch.cuda.mem_get_info(device)
    unclaimed = total - int(reserve_gib * GIB) - OWN_BYTES
    if free < unclaimed:
        logger.warning(
            "flow: %.1f of the %.1f GiB of %s are free; others hold more than gpu_reserve_gib=%g",
            free / GIB,
            total / GIB,
            device,
            reserve_gib,
        )
    return min(int(share * total), max(0, min(free, unclaimed) - work_bytes))


def machine_memory() -> int:
    """Bytes of this machine or container."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else "max"
    return machine if limit == "max" else min(machine, int(limit))
