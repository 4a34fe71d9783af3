"""The ways in which the speech LM and token2wav share a GPU in one process."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cosyvoice_runtime.gpu.partitions.partition import GpuPart, GpuParts

Later = Callable[[Callable[[], None]], None]
"""A function that prepares what is missing, and calls its argument after each small part."""


class SharedGpu:
    """A GPU that the speech LM and token2wav share: by default it is not divided, and neither waits.

    Attributes:
        parts: partitions of the GPU, if it is divided.
        turns_at_once: batches that may be in progress; the next one is launched before the last one ends.
    """

    parts: GpuParts | None = None
    turns_at_once = sys.maxsize

    @property
    def steps(self) -> GpuPart | None:
        """The partition for steps of the speech LM now; None while they have the whole GPU."""
        return None

    @property
    def stands_still(self) -> bool:
        """Whether steps without a waiting listener should pause: a first chunk uses their partition."""
        return False

    def when_free(self, tell: Callable[[], None]) -> None:
        """Take a function to call when such a first chunk has ended and ``stands_still`` has changed."""

    def few(self, utterances: int) -> bool:  # noqa: ARG002
        """Choose the division for this number of utterances, and return whether it is the one for few."""
        return False

    def divide_for_few(self) -> None:
        """Enable the division for few utterances, whose calls are now captured."""

    def leave(self, later: Sequence[Later]) -> bool:  # noqa: ARG002
        """Leave work of the speech LM that can be prepared during service, in place of what it left before;
        returns False if that has been taken already."""
        return False

    def take_later(self) -> Sequence[Later]:
        """Take what :meth:`leave` left, once."""
        return ()

    def turn(self) -> AbstractContextManager[bool]:
        """Run a batch of token2wav in the block; the value says whether it had to wait."""
        return nullcontext(False)

    def first_chunk(self, utterances: int) -> AbstractContextManager[None]:  # noqa: ARG002
        """Compute first chunks in the block, on the steps' partition; ``utterances`` were in progress
        before."""
        return nullcontext()

    def step(self, urgent: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        """Run a step of the speech LM in the block; it is urgent if a listener waits for first tokens."""
        return nullcontext()

    def rest(self) -> None:
        """Note that the speech LM has no step to run for now."""


SHIFT_S, SHIFT_OF_TURN = 0.025, 0.5
"""The minimum time for steps after a batch (some 30 steps of 16 sequences on an H200), and as a share of the
batch's time for slower GPUs."""
FIRST_TOKENS_S, FIRST_TOKENS_OF_TURN = 0.04, 0.8
"""This minimum while a listener waits for first tokens."""


class GpuShifts(SharedGpu):
    """Runs either steps of the speech LM or batches of token2wav, never both.

    For GPUs that can't be divided (`GpuDivision`). What a step has launched for the next one ends during a
    batch.

    Concurrently they take longer than one after the other: a step is 150 small kernels in a row, each of
    which waits for room between large ones. Sixteen sequences need 0.8 ms alone and 3.7 during a batch, which
    takes longer itself; and a listener's first audio waits for sixteen steps. So steps pause during a batch,
    and go first for a while when it has ended, for first tokens longer (`FIRST_TOKENS_S`). Neither waits for
    one that has nothing to do.

    Args:
        clock: monotonic seconds.
    """

    turns_at_once = 1

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._turning = self._stepping = self._has_steps = self._urgent = False
        self._turns_wanted = 0
        self._turn_s, self._turn_end = 0.0, -FIRST_TOKENS_S

    @contextmanager
    def turn(self) -> Iterator[bool]:
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
    def step(self, urgent: bool) -> Iterator[None]:
        with self._changed:
            if urgent != self._urgent:
                self._changed.notify_all()  # The longest wait of a batch depends on it.
            self._has_steps, self._urgent = True, urgent
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
        with self._changed:
            self._has_steps = False
            self._changed.notify_all()

    def _may_step(self) -> bool:
        return not self._turning and not (self._turns_wanted and self._wait_s() <= 0)

    def _wait_s(self) -> float:
        """The seconds for which a batch must still wait, apart from a step in progress."""
        if not self._has_steps:
            return 0.0
        if self._urgent:
            shift_s = max(FIRST_TOKENS_S, FIRST_TOKENS_OF_TURN * self._turn_s)
        else:
            shift_s = max(SHIFT_S, SHIFT_OF_TURN * self._turn_s)
        return self._turn_end + shift_s - self._clock()
