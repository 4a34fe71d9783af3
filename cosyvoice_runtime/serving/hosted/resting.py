"""A large object that is released while it is not in use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Resting(Generic[T]):
    """An object that is opened at once, released after a time without users, and opened anew on demand.

    Safe for several threads, which may use it together.

    Args:
        open_: makes the object; its users get its errors.
        idle_s: time without users after which the object is released; 0 keeps it.
        gone: called after the release.
    """

    def __init__(self, open_: Callable[[], T], idle_s: float, gone: Callable[[], None]) -> None:
        self._open, self._idle_s, self._gone = open_, idle_s, gone
        self._lock = threading.Lock()
        self._users = 0
        self._timer: threading.Timer | None = None
        self._held: T | None = open_()
        with self._lock:
            self._rest()

    @contextmanager
    def used(self) -> Iterator[T]:
        """Keep the object open during the block."""
        held = self._take()
        try:
            yield held
        finally:
            del held  # The last user may hold the last reference.
            with self._lock:
                self._users -= 1
                self._rest()

    def close(self) -> None:
        """Release the object now; present users keep it."""
        with self._lock:
            self._wake()
            self._held = None

    def _take(self) -> T:
        with self._lock:  # One user opens the object for all that wait.
            self._wake()
            if self._held is None:
                self._held = self._open()
            self._users += 1
            return self._held

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest(self) -> None:
        if self._users or not self._idle_s:
            return
        timer = threading.Timer(self._idle_s, lambda: self._go(timer))
        timer.daemon = True
        timer.start()
        self._timer = timer  # The timer may not have been started.

    def _go(self, timer: threading.Timer) -> None:
        with self._lock:
            if self._timer is not timer:  # A user may have come while the timer fired.
                return
            self._timer = self._held = None
        self._gone()
