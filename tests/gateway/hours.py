"""Time that a test makes pass."""

from __future__ import annotations

import asyncio
import time


class Hours:
    """The loop's clock, which can be put forward: timers go off sooner, and nobody has to wait."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        asyncio.get_running_loop().time = lambda: time.monotonic() + self._ahead_s

    async def pass_by(self, seconds: float) -> None:
        self._ahead_s += seconds
        await asyncio.sleep(0.01)
