"""A GPU that is divided while the speech LM and token2wav both compute: neither waits for the other."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from cosyvoice_runtime.gpu_parts import GpuParts, GpuPartsError, divide
from cosyvoice_runtime.serving.gpu_shifts import GpuShifts
from cosyvoice_runtime.serving.shared_gpu import SharedGpu

logger = logging.getLogger(__name__)


class GpuDivision:
    """Turns of token2wav and steps of the speech LM side by side, each on a part of its own.

    A step is 150 small kernels in a row, launched so that each waits on the multiprocessors for the one
    before. On a whole GPU that makes a turn take two to four times as long; within a quarter of it, a turn
    beside does not notice, and sixteen sequences still step in a millisecond (benchmarks/gpu_parts.py).
    While no turn is under way the speech LM has the whole GPU.
    """

    turns_at_once = 2

    def __init__(self, parts: GpuParts) -> None:
        self.parts = parts
        self._turns = 0
        self._counting = threading.Lock()

    @property
    def turning(self) -> bool:
        """Whether a turn is under way."""
        return self._turns > 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """In which token2wav computes; one may begin before another ends."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._counting:
            self._turns += more

    def step(self, hurried: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        """In which the speech LM makes a step; it never waits."""
        return nullcontext()

    def rest(self) -> None:
        """Nobody waits for that."""


def share_gpu(gpu: int, lm_share: float, lanes: int = 1) -> SharedGpu:
    """Divided if the GPU can be, else in shifts; the log says which.

    Args:
        gpu: its number.
        lm_share: of the multiprocessors, the speech LM's while token2wav computes; 0 for shifts.
        lanes: parts for turns side by side.
    """
    if not lm_share:
        logger.info("the speech LM and token2wav compute in shifts, as tensorrt_llm.gpu_share = 0 says")
        return GpuShifts()
    try:
        parts = divide(torch.device("cuda", gpu), lm_share, lanes)
    except GpuPartsError as error:
        if lanes > 1:
            logger.warning("one part for turns instead of %d: %s", lanes, error)
            return share_gpu(gpu, lm_share)
        logger.warning("the speech LM and token2wav compute in shifts: the GPU can't be divided: %s", error)
        return GpuShifts()
    logger.info(
        "the GPU's multiprocessors while token2wav computes: %d for the speech LM, %s for turns",
        parts.steps.multiprocessors,
        " and ".join(str(part.multiprocessors) for part in parts.turns),
    )
    return GpuDivision(parts)
