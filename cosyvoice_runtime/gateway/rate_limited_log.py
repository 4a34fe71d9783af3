"""Rate-limited log lines, for warnings that clients can cause."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

PAUSE_S = 60.0
"""The time between two lines; the next one says how many were left out."""


class RateLimitedLog:
    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._next = 0.0
        self._left_out = 0

    def warning(self, text: str, *values: object) -> None:
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        self._logger.warning(text + " (%d times since the last such line)", *values, self._left_out)
        self._next, self._left_out = now + PAUSE_S, 0


def log_accept_errors(loop: asyncio.AbstractEventLoop, logger: logging.Logger) -> None:
    """Log at a limited rate that a loop can't accept connections, which it retries continuously."""
    limited = RateLimitedLog(logger)

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "accept" in context.get("message", ""):
            limited.warning("connections can't be accepted: %s", context.get("exception"))
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
