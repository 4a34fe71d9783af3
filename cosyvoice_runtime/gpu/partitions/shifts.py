"""A GPU that the speech LM and token2wav use alternately, one of them at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cosyvoice_runtime.gpu.partitions.shared_gpu import UndividedGpu

SHIFT_S, SHIFT_OF_TURN = 0.025, 0.5
"""The minimum time for steps after a batch (some 30 steps of 16 sequences on an H200), and as a share of the
batch's time for slower GPUs."""
FIRST_TOKENS_S, FIRST_TOKENS_OF_TURN = 0.04, 0.8
"""This minimum while a listener waits for first tokens."""


class GpuShifts(UndividedGpu):
    """Runs either steps of the speech LM or batches of token2wav, never both.

    For GPUs that can't be divided (`GpuDivision`). What a step has launched for the next one ends beside a
    turn.

    Side by side they take longer than one after the other: a step is 150 small kernels in a row, each of
    which waits for room between large ones. Sixteen sequences need 0.8 ms alone and 3.7 beside a turn, which
    takes longer itself; and a listener's first audio waits for sixteen steps. So steps stand still during a
    turn, and go first for a while when it has ended, for first tokens longer (`FIRST_TOKENS_S`). Neither
    waits for one that has nothing to do.

    Args:
        clock: monotonic seconds.
    """

    turns_at_once = 1

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._turning = self._stepping = self._has_steps = self._hurried = False
        self._turns_wanted = 0
        self._turn_s, self._turn_end = 0.0, -FIRST_TOKENS_S

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Run a batch of token2wav in the block; the value says whether it had to wait."""
        waited = False
        with self._changed:
            self._turns_wanted += 1
            try:
                while (wait_s := self._wait_s()) > 0 or self._stepping or self._turning:
                    waited = True
                    self._changed.wait(wait_s if wait_s > 0 else None)
            finally:
                self._turns_wanted -= 1
            self._turning = True
        begun = self._clock()
        try:
            yield waited
        finally:
            with self._changed:
                self._turning = False
                self._turn_end = self._clock()
                self._turn_s = self._turn_end - begun
                self._changed.notify_all()

    @contextmanager
    def step(self, hurried: bool) -> Iterator[None]:
        """Run a step of the speech LM in the block.

        Args:
            hurried: whether a listener waits for first tokens.
        """
        with self._changed:
            if hurried != self._hurried:
                self._changed.notify_all()  # The longest wait of a batch depends on it.
            self._has_steps, self._hurried = True, hurried
            self._changed.wait_for(self._may_step)
            self._stepping = True
        try:
            yield
        finally:
            with self._changed:
                self._stepping = False
                self._changed.notify_all()

    @property
    def turn_is_wanted(self) -> bool:
        """Whether a batch waits."""
        return self._turns_wanted > 0

    def rest(self) -> None:
        """Note that the speech LM has no step to run for now."""
        with self._changed:
            self._has_steps = False
            self._changed.notify_all()

    def _may_step(self) -> bool:
        return not self._turning and not (self._turns_wanted and self._wait_s() <= 0)

    def _wait_s(self) -> float:
        """The seconds for which a batch must still wait, apart from a step in progress."""
        if not self._has_steps:
            return 0.0
        if self._hurried:
            shift_s = max(FIRST_TOKENS_S, FIRST_TOKENS_OF_TURN * self._turn_s)
        else:
            shift_s = max(SHIFT_S, SHIFT_OF_TURN * self._turn_s)
        return self._turn_end + shift_s - self._clock()
