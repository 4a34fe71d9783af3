"""The timeout for clients that read their answers too slowly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

SLOWEST_BYTES_PER_S = 2**15
"""Two thirds of the byte rate of 16-bit speech as it is played."""
LARGEST_BUFFER = 2**24
"""The most bytes that a client may have received and not read."""


class SlowReaderTimeout:
    """The slow-reader timeout of one call.

    What is seen of a client is that a write comes to its end. One that reads as it plays, out of a buffer of
    its own, asks for more when half of that has been played, and a large write ends when all of it has been
    taken. Such a client takes its time, which is added.

    Args:
        timeout_s: longest time in which the client may read nothing, added to what slow playback takes.
        client: its address, for the log.
        give_up: called when the client has read nothing for too long.
    """

    def __init__(self, timeout_s: float, client: str, give_up: Callable[[], None]) -> None:
        self._timeout_s = timeout_s
        self._client = client
        self._give_up = give_up
        self._written = 0

    @contextmanager
    def during(self, size: int) -> Iterator[None]:
        """Limit the time of a write of ``size`` bytes."""
        allowed_s = self._timeout_s + (min(self._written, LARGEST_BUFFER) + size) / SLOWEST_BYTES_PER_S
        timer = asyncio.get_running_loop().call_later(allowed_s, self._end, size, allowed_s)
        try:
            yield
        finally:
            timer.cancel()
        self._written += size

    def _end(self, size: int, allowed_s: float) -> None:
        logger.warning(
            "%s is given up: it did not take %d bytes within %.0f s, which are stalled_client_timeout_s and "
            "what slow playing takes of these bytes and %d before",
            self._client,
            size,
            allowed_s,
            min(self._written, LARGEST_BUFFER),
        )
        self._give_up()
