"""A limit on calls in progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cosyvoice_runtime.gateway.policy import RefusedError

RETRY_S = 5.0
"""So many calls are an attack or a fault, which don't pass at once."""


class CallLimit:
    """For one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """For as long as a call is in progress.

        Raises:
            RefusedError: too many are.
        """
        if self._count >= self._limit:
            text = f"{self._limit} calls are in progress, the limit; try again in {RETRY_S:g} s"
            raise RefusedError("UNAVAILABLE", text)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
