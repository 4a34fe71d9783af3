"""How often, and how soon, what may fail is tried again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 600.0
FIRST_S, LONGEST_S = 1.0, 30.0


class Allowance:
    """A limit on how often something happens within ten minutes.

    Args:
        limit: greatest number of times.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken: deque[float] = deque()

    def take(self) -> bool:
        """Whether it may happen now; if so, it counts."""
        now = time.monotonic()
        while self._taken and now - self._taken[0] > WINDOW_S:
            self._taken.popleft()
        if len(self._taken) >= self._limit:
            return False
        self._taken.append(now)
        return True


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
        self._first_s = self._next_s = first_s
        self._longest_s = longest_s
        self._clock = clock
        self._until = clock()

    @property
    def left_s(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._until - self._clock())

    def failed(self) -> float:
        """A try has failed just now; returns: the seconds until the next one."""
        pause_s = self._next_s
        self._until = self._clock() + pause_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s

    def succeeded(self) -> None:
        self._next_s = self._first_s
        self._until = self._clock()
