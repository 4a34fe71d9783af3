"""How often something may happen."""

from __future__ import annotations

import time
from collections import deque

WINDOW_S = 600.0


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
