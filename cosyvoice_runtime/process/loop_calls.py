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
    """Runs functions in an event loop for other threads, all that are pending in one wake-up; made in that
    loop.

    Made in that loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Callable[[], None]] = deque()
        self._woken = False

    def add(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function soon, in order; a loop that has ended calls nothing."""
        self._waiting.append(partial(function, *arguments))
        if not self._woken:  # A wake-up that is already scheduled finds the new call.
            self._woken = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        self._woken = False
        while self._waiting:
            call = self._waiting.popleft()
            try:
                call()
            except Exception:  # An error must not keep the later calls from running.
                logger.exception("a call in the event loop failed")
