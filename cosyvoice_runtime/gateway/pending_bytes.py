"""The limit on the memory that large requests take in the server."""

from __future__ import annotations

from cosyvoice_runtime.gateway.policy import RefusedError

FREE_OF_CHARGE = 65_536
"""Requests up to this size are not counted: a text with a named voice always gets through."""
RETRY_S = 2.0
"""A request counts until its answer begins, which takes most requests less than this."""


class PendingBytes:
    """Counts the bytes of requests that tritonserver has not begun to answer, for one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.count = 0

    def take(self, size: int) -> int:
        """Count a request, and return the bytes to :meth:`give_back`.

        Raises:
            RefusedError: too many large requests are pending.
        """
        if size <= FREE_OF_CHARGE:
            return 0
        if self.count and self.count + size > self._limit:
            raise RefusedError("UNAVAILABLE", f"too many large requests at once; try again in {RETRY_S:g} s")
        self.count += size
        return size

    def give_back(self, size: int) -> None:
        self.count -= size
