"""Something large that goes while nobody needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Resting(Generic[T]):
    """Opened at once, given up when nobody has used it for some time, and opened anew for who needs it then.

    Safe for several threads, which may use it together.

    Args:
        open_: makes it; what it raises hears whoever needs it.
        idle_s: without a user, after which it goes; 0 keeps it.
        gone: called after it went.
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
        """In which it stays."""
        held = self._take()
        try:
            yield held
        finally:
            del held  # the last user may be the last to hold it
            with self._lock:
                self._users -= 1
                self._rest()

    def close(self) -> None:
        """Give it up now; those who use it go on."""
        with self._lock:
            self._wake()
            self._held = None

    def _take(self) -> T:
        with self._lock:  # one opens it for all who come
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
        self._timer = timer  # not one that could not be started

    def _go(self, timer: threading.Timer) -> None:
        with self._lock:
            if self._timer is not timer:  # somebody came while it rang
                return
            self._timer = self._held = None
        self._gone()
