"""The limit on concurrent calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cosyvoice_runtime.gateway.policy import RefusedError

RETRY_S = 5.0
"""This many calls mean an attack or a fault, which lasts for a while."""


class CallLimit:
    """Counts the calls of one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count a call while the block runs.

        Raises:
            RefusedError: the limit is reached.
        """
        if self._count >= self._limit:
            text = f"{self._limit} calls are in progress, the limit; try again in {RETRY_S:g} s"
            raise RefusedError("UNAVAILABLE", text)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
