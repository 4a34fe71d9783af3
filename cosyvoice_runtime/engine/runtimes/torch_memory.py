"""How much of a torch device's memory pages may take, and how many utterances go in a turn."""

from __future__ import annotations

import logging

import torch

from cosyvoice_runtime.engine.runtimes.memory import host_room
from cosyvoice_runtime.flow.kernels.choice import solver_obstacle
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.settings.gpu_memory import (
    GIB,
    MEDIUM_BATCH,
    WORK_BYTES,
    room_for_pages,
    rows_on,
    unclaimed_bytes,
)

logger = logging.getLogger(__name__)


def turn_rows(flow: Flow, settings: Token2WavSettings) -> int:
    """Most utterances in a turn: fewer than ``max_batch`` where the memory is better spent on pages.

    Plain modules gain little from more than 16, and take more memory for them.
    """
    rows = settings.most_batch
    if flow.device.type != "cuda" or settings.backend != "torch":
        return rows
    rows = rows_on(torch.cuda.mem_get_info(flow.device)[1], rows)
    if not settings.cuda_graphs or settings.kernels == "plain" or _plain_alone(flow):
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
    unclaimed = unclaimed_bytes(total, reserve_gib)
    if free < unclaimed:
        logger.warning(
            "flow: %.1f of the %.1f GiB of %s are free; others hold more than gpu_reserve_gib=%g",
            free / GIB,
            total / GIB,
            device,
            reserve_gib,
        )
    return room_for_pages(total, min(free, unclaimed), share, work_bytes)
