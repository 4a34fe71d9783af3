"""Pauses between tries of what may fail for a while."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_S, LONGEST_S = 1.0, 30.0


class GrowingPause:
    """Each failure in a row makes the pause after it twice as long, up to a limit; a success starts again.

    Args:
        clock: seconds that pass.
    """

    def __init__(
        self,
        first_s: float = FIRST_S,
        longest_s: float = LONGEST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._clock = clock
        self._next_s = first_s
        self._until = clock()

    @property
    def over(self) -> bool:
        """Whether it is time for a try."""
        return self._clock() >= self._until

    def failed(self) -> float:
        """A try has failed just now; returns: the seconds until the next one."""
        pause_s = self._next_s
        self._until = self._clock() + pause_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s

    def succeeded(self) -> None:
        self._next_s = self._first_s
        self._until = self._clock()
