"""A GPU that is divided while the speech LM and token2wav both compute: neither waits for the other's end."""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from cosyvoice_runtime.gpu.partitions.partition import GpuPart, GpuParts, GpuPartsError, divide
from cosyvoice_runtime.gpu.partitions.shared_gpu import Later, SharedGpu
from cosyvoice_runtime.gpu.partitions.shifts import GpuShifts
from cosyvoice_runtime.gpu.partitions.sole_use import SoleUse

logger = logging.getLogger(__name__)

FEW, FEW_AGAIN = 32, 24
"""Utterances in progress up to which they are few, and from which on they are few again after they were many.
With 16 clients of an H200, 48 of 132 multiprocessors instead of 32 bring first audio a quarter sooner; with
64 they cost a fifth of all speech (benchmarks/results/README.md)."""
FIRST_LANES_OF_FEW = 3
"""Lanes of hurried chunks then: a first one does not wait for others' turn. For many, two cost a tenth of all
speech."""
OWN_FIRST_LANES = 2
"""The same where no steps are made on their part."""
CALM = 4
"""Utterances in progress up to which turns that nobody waits for are put off for a first chunk."""
STILL = 6
"""Utterances in progress up to which steps that nobody waits for stand still beside a first chunk. On 48
multiprocessors of an H100 it takes 23 ms alone and 31 beside steps."""
HANDED_S = 0.003
"""From first tokens to the launch of their chunk at most: steps would share Python's lock with it."""
LINGERS_S = 0.008
"""From a step that makes first tokens until they are in token2wav, whether as a chunk or not."""
ROOMY_BYTES = 40 * 2**30
"""Memory of a GPU from which calls are captured for both divisions (`torch_memory.work_bytes`)."""


class GpuDivision:
    """Turns of token2wav and steps of the speech LM side by side, each on a part of its own.

    A step is 150 small kernels in a row, launched so that each waits on the multiprocessors for the one
    before. On a whole GPU that makes a turn take two to four times as long; within a quarter of it, a turn
    beside does not notice, and sixteen sequences still step in a millisecond.
    While no turn is under way the speech LM has the whole GPU.

    What is best for first audio is not best for all speech: with few utterances in progress the part for
    steps and hurried chunks is larger (`GpuParts.of_few`).
    """

    turns_at_once = 2

    def __init__(self, parts: GpuParts, clock: Callable[[], float] = time.monotonic) -> None:
        self.parts = parts
        self._clock = clock
        self._first_tokens_s = self._handed_s = -math.inf
        self._later: Sequence[Later] | None = ()
        self._turns = self._alone = 0
        self._few = self._for_few = False
        self._utterances = 0
        self._counting = threading.Lock()

    @property
    def turning(self) -> bool:
        """Whether a turn is under way."""
        return self._turns > 0

    @property
    def steps(self) -> GpuPart | None:
        """The part for steps now; None while they have the whole GPU."""
        if not self.turning:
            return None
        few = self.parts.of_few if self._few else None
        return self.parts.steps if few is None else few.steps

    def few(self, utterances: int) -> bool:
        """Divide the GPU for so many utterances in progress; whether it is for few now."""
        self._utterances = utterances
        if self._for_few:
            self._few = utterances <= (FEW if self._few else FEW_AGAIN)
        return self._few

    def divide_for_few(self) -> None:
        """See :meth:`SharedGpu.divide_for_few`."""
        self._for_few = self.parts.of_few is not None

    def puts_off(self, utterances: int, first_waits: bool) -> bool:
        """See :meth:`SharedGpu.puts_off`."""
        if utterances > CALM:
            return False
        return first_waits or self._clock() < self._first_tokens_s + LINGERS_S

    def leave(self, later: Sequence[Later]) -> bool:
        """See :meth:`SharedGpu.leave`."""
        if self._later is None:
            return False
        self._later = later
        return True

    def take_later(self) -> Sequence[Later]:
        """What was left, once."""
        later, self._later = self._later or (), None
        return later

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """In which token2wav computes, at once; one may begin before another ends."""
        self._count(1)
        try:
            yield False
        finally:
            self._count(-1)

    @property
    def stands_still(self) -> bool:
        """See :meth:`SharedGpu.stands_still`."""
        return self._alone > 0 or self._clock() < self._handed_s + HANDED_S

    def hands_over(self) -> None:
        """See :meth:`SharedGpu.hands_over`."""
        if self._utterances <= STILL:
            self._handed_s = self._clock()

    @contextmanager
    def first_chunk(self, utterances: int) -> Iterator[None]:
        """See :meth:`SharedGpu.first_chunk`."""
        alone = int(utterances <= STILL)
        self._count(0, alone)
        try:
            yield
        finally:
            self._count(0, -alone)

    def _count(self, turns: int, alone: int = 0) -> None:
        with self._counting:
            self._turns += turns
            self._alone += alone

    @contextmanager
    def step(self, hurried: bool) -> Iterator[None]:
        """In which the speech LM makes a step; it never waits."""
        if hurried:
            self._first_tokens_s = math.inf
        try:
            yield
        finally:
            if hurried:
                self._first_tokens_s = self._clock()

    def rest(self) -> None:
        """Nobody waits for that."""


def share_gpu(gpu: int, lm_share: float, lanes: int = 1, share_of_few: float = 0.0) -> SharedGpu:
    """Divided if the GPU can be, else in shifts; the log says which.

    Args:
        gpu: its number.
        lm_share: of the multiprocessors, the speech LM's while token2wav computes; 0 for shifts.
        lanes: parts for turns side by side.
        share_of_few: the same with few utterances in progress; no more than ``lm_share`` is as that.
    """
    if not lm_share:
        logger.info("the speech LM and token2wav compute in shifts, as tensorrt_llm.gpu_share = 0 says")
        return GpuShifts()
    device = torch.device("cuda", gpu)
    try:
        parts = divide(device, lm_share, lanes)
    except GpuPartsError as error:
        if lanes > 1:
            logger.warning("one part for turns instead of %d: %s", lanes, error)
            return share_gpu(gpu, lm_share, share_of_few=share_of_few)
        logger.warning("the speech LM and token2wav compute in shifts: the GPU can't be divided: %s", error)
        return GpuShifts()
    if lanes == 1 and share_of_few > lm_share:
        parts = dataclasses.replace(parts, of_few=_parts_of_few(device, share_of_few, parts))
    _tell(parts, "the speech LM", "while token2wav computes")
    if parts.of_few is not None:
        _tell(parts.of_few, "the speech LM", f"the same with up to {FEW} utterances in progress")
    return GpuDivision(parts)


def own_gpu(gpu: int, hurried_share: float) -> SharedGpu:
    """One that token2wav has for itself, divided if it can be; the log says whether it is.

    Args:
        gpu: its number.
        hurried_share: of the multiprocessors, for hurried chunks beside turns; more than 0.
    """
    try:
        parts = divide(torch.device("cuda", gpu), hurried_share, first_lanes=OWN_FIRST_LANES)
    except GpuPartsError as error:
        logger.warning("hurried chunks wait for turns: GPU %d can't be divided: %s", gpu, error)
        return SoleUse()
    _tell(parts, "hurried chunks", f"on GPU {gpu}, which the speech LM is not on")
    return GpuDivision(parts)


def _parts_of_few(device: torch.device, share: float, of_many: GpuParts) -> GpuParts | None:
    """None where there is no memory for calls that are captured twice, or the driver gives nothing else."""
    if torch.cuda.get_device_properties(device).total_memory < ROOMY_BYTES:
        logger.info("one division of the GPU, however many speak: it has less than %d GiB", ROOMY_BYTES >> 30)
        return None
    try:
        parts = divide(device, share, first_lanes=FIRST_LANES_OF_FEW)
    except GpuPartsError as error:
        logger.warning("one division of the GPU, however many speak: %s", error)
        return None
    return parts if parts.steps.multiprocessors > of_many.steps.multiprocessors else None


def _tell(parts: GpuParts, first: str, when: str) -> None:
    logger.info(
        "the GPU's multiprocessors %s: %d for %s, %s for turns",
        when,
        parts.steps.multiprocessors,
        first,
        " and ".join(str(part.multiprocessors) for part in parts.turns),
    )
