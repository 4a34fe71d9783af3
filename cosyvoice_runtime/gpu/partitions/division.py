"""A GPU that is divided while the speech LM and token2wav both compute, so that neither waits."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from cosyvoice_runtime.gpu.memory import free_and_total
from cosyvoice_runtime.gpu.partitions.partition import GpuPart, GpuParts, GpuPartsError, divide
from cosyvoice_runtime.gpu.partitions.shared_gpu import GpuShifts, Later, SharedGpu

logger = logging.getLogger(__name__)

FEW, FEW_AGAIN = 32, 24
"""The division for few utterances holds up to the first number, and comes back at the second after there were
more. With 16 clients of an H200, 48 of 132 multiprocessors instead of 32 bring first audio a quarter sooner;
with 64 they cost a fifth of all speech (benchmarks/results/README.md)."""
FIRST_LANES_OF_FEW = 3
"""The workers for urgent first chunks in this division, so that one does not wait for others. For many
utterances, two cost a tenth of all speech."""
STILL = 6
"""The utterances in progress up to which steps without a waiting listener pause during a first chunk. On 48
multiprocessors of an H100 a first chunk takes 23 ms alone and 31 with concurrent steps."""
ROOMY_BYTES = 40 * 2**30
"""The GPU memory from which calls are captured for both divisions (`settings.gpu_memory.work_bytes`)."""


class GpuDivision(SharedGpu):
    """Runs batches of token2wav and steps of the speech LM concurrently, each on its own partition.

    A step is 150 small kernels in a row, launched so that each waits on the multiprocessors for the one
    before. On a whole GPU that makes a concurrent batch take two to four times as long; within a quarter of
    it, a batch does not notice, and sixteen sequences still step in a millisecond.
    While no batch is in progress the speech LM has the whole GPU.

    What is best for first audio is not best for all speech: with few utterances in progress the partition for
    steps and urgent chunks is larger (`GpuParts.of_few`).
    """

    parts: GpuParts
    turns_at_once = 2

    def __init__(self, parts: GpuParts) -> None:
        self.parts = parts
        self._later: Sequence[Later] | None = ()
        self._turns = self._alone = 0
        self._few = self._for_few = False
        self._tell: Callable[[], None] = _nothing
        self._counting = threading.Lock()

    @property
    def turning(self) -> bool:
        """Whether a batch of token2wav is in progress."""
        return self._turns > 0

    @property
    def steps(self) -> GpuPart | None:
        if not self.turning:
            return None
        few = self.parts.of_few if self._few else None
        return self.parts.steps if few is None else few.steps

    def few(self, utterances: int) -> bool:
        if self._for_few:
            self._few = utterances <= (FEW if self._few else FEW_AGAIN)
        return self._few

    def divide_for_few(self) -> None:
        self._for_few = self.parts.of_few is not None

    def leave(self, later: Sequence[Later]) -> bool:
        if self._later is None:
            return False
        self._later = later
        return True

    def take_later(self) -> Sequence[Later]:
        later, self._later = self._later or (), None
        return later

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Note a batch of token2wav, which starts at once; several may overlap."""
        self._count(1)
        try:
            yield False
        finally:
            self._count(-1)

    @property
    def stands_still(self) -> bool:
        return self._alone > 0

    def when_free(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    @contextmanager
    def first_chunk(self, utterances: int) -> Iterator[None]:
        alone = int(utterances <= STILL)
        self._count(0, alone)
        try:
            yield
        finally:
            self._count(0, -alone)
            if alone:
                self._tell()

    def _count(self, turns: int, alone: int = 0) -> None:
        with self._counting:
            self._turns += turns
            self._alone += alone


def _nothing() -> None:
    """Do nothing: no speech LM makes steps on this GPU."""


def share_gpu(gpu: int, lm_share: float, share_of_few: float = 0.0) -> SharedGpu:
    """The GPU, divided if possible, otherwise in shifts; the log says which.

    Args:
        gpu: number of the GPU.
        lm_share: share of multiprocessors for the speech LM while token2wav computes; 0 chooses shifts.
        share_of_few: this share for few utterances; it is at least ``lm_share``.
    """
    if not lm_share:
        logger.info("the speech LM and token2wav compute in shifts, as tensorrt_llm.gpu_share = 0 says")
        return GpuShifts()
    device = torch.device("cuda", gpu)
    try:
        parts = divide(device, lm_share)
    except GpuPartsError as error:
        logger.warning("the speech LM and token2wav compute in shifts: the GPU can't be divided: %s", error)
        return GpuShifts()
    if share_of_few > lm_share:
        parts = dataclasses.replace(parts, of_few=_parts_of_few(device, share_of_few, parts))
    _tell(parts, "while token2wav computes")
    if parts.of_few is not None:
        _tell(parts.of_few, f"the same with up to {FEW} utterances in progress")
    return GpuDivision(parts)


def _parts_of_few(device: torch.device, share: float, of_many: GpuParts) -> GpuParts | None:
    """The partitions for few utterances; None if memory is short or the driver can't make them."""
    if free_and_total(device)[1] < ROOMY_BYTES:
        logger.info("one division of the GPU, however many speak: it has less than %d GiB", ROOMY_BYTES >> 30)
        return None
    try:
        parts = divide(device, share, first_lanes=FIRST_LANES_OF_FEW)
    except GpuPartsError as error:
        logger.warning("one division of the GPU, however many speak: %s", error)
        return None
    return parts if parts.steps.multiprocessors > of_many.steps.multiprocessors else None


def _tell(parts: GpuParts, when: str) -> None:
    logger.info(
        "the GPU's multiprocessors %s: %d for the speech LM, %d for batches",
        when,
        parts.steps.multiprocessors,
        parts.turns.multiprocessors,
    )
