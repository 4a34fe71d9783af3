"""How much of a torch device's memory pages may take, and how many utterances go in a turn."""

from __future__ import annotations

import logging

import torch

from cosyvoice_runtime.flow.flow import Flow
from cosyvoice_runtime.kernels.choice import solver_obstacle
from cosyvoice_runtime.serving.token2wav.memory import GIB, host_room
from cosyvoice_runtime.settings import Token2WavSettings

logger = logging.getLogger(__name__)

SMALL_BATCH, MEDIUM_BATCH = 8, 16
WORK_BYTES, MEDIUM_WORK_BYTES, LARGE_WORK_BYTES = 6 * GIB, 9 * GIB, 12 * GIB
"""Of a GPU's free memory, what the pages leave for CUDA graphs and for calls that none holds: with batches of
up to 8 (measured: 2 to 3 GB of graphs), of up to 16 (4 to 6), and of more (not measured)."""
LARGE_GPU_BYTES = 40 * GIB
"""Memory of a GPU from which turns have more."""
OWN_BYTES = 2 * GIB
"""What this process holds of a GPU when it plans: the driver's context, weights, and what loading left."""


def work_bytes(rows: int, lanes: int = 1) -> int:
    """Of a GPU, what captured calls of up to so many utterances take, and what runs beside them.

    Args:
        lanes: of turns at the same time, each with calls of its own.
    """
    if rows <= SMALL_BATCH:
        return WORK_BYTES * lanes
    return (MEDIUM_WORK_BYTES if rows <= MEDIUM_BATCH else LARGE_WORK_BYTES) * lanes


def turn_rows(flow: Flow, settings: Token2WavSettings, lanes: int = 1) -> int:
    """Most utterances in a turn: fewer than ``max_batch`` where the memory is better spent on pages.

    Plain modules gain little from more than 16, and take more memory for them; so do several lanes, of which
    each has a part of the GPU.
    """
    rows = settings.most_batch
    if flow.device.type != "cuda" or settings.backend != "torch":
        return rows
    if torch.cuda.mem_get_info(flow.device)[1] < LARGE_GPU_BYTES:
        rows = min(rows, SMALL_BATCH)
    if lanes > 1 or not settings.cuda_graphs or settings.kernels == "plain" or _plain_alone(flow):
        rows = min(rows, MEDIUM_BATCH)
    return rows


def _plain_alone(flow: Flow) -> bool:
    return solver_obstacle(flow.device, flow.dtype, flow.config.blockwise, flow.solver.name) is not None


def room(device: torch.device, share: float, reserve_gib: float = 0.0, work_bytes: int = WORK_BYTES) -> int:
    """Bytes for pages: a share of the device's memory, and on a GPU no more than is left beside the work.

    Args:
        reserve_gib: of a GPU, what other processes take before or after; so the number doesn't depend on who
            loads first.
        work_bytes: of a GPU, what this process still needs beside the pages.
    """
    if device.type != "cuda":
        return host_room(share)
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
