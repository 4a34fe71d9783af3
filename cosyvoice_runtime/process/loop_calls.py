"""Calls into an event loop from other threads."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

logger = logging.getLogger(__name__)


class LoopCalls:
    """Calls of functions in an event loop from other threads: all that have come meanwhile in one wake-up.

    Made in that loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Callable[[], None]] = deque()
        self._woken = False

    def add(self, function: Callable[..., None], *arguments: object) -> None:
        """Call this soon, after all added before; not at all if the loop has ended."""
        self._waiting.append(partial(function, *arguments))
        if not self._woken:  # otherwise the call to come finds it
            self._woken = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        self._woken = False
        while self._waiting:
            call = self._waiting.popleft()
            try:
                call()
            except Exception:  # those behind it are others'
                logger.exception("a call in the event loop failed")
