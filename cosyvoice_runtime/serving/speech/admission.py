"""How many utterances may be in progress."""

from __future__ import annotations

import threading

from cosyvoice_runtime.errors import OverloadedError


class Admission:
    """A counter with a limit. Refusing at once tells a client to try elsewhere; queueing would not."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        return self._count

    def enter(self) -> None:
        """Take a place; pair with :meth:`leave`.

        Raises:
            OverloadedError: none is free.
        """
        with self._lock:
            if self._count >= self._limit:
                raise OverloadedError(f"{self._count} utterances are in progress, the limit; try again later")
            self._count += 1

    def leave(self) -> None:
        with self._lock:
            self._count -= 1
