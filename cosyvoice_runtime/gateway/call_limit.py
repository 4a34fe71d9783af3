"""A limit on calls in progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cosyvoice_runtime.gateway.policy import RefusedError


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
            text = f"{self._limit} calls are in progress, the limit; try again later"
            raise RefusedError("UNAVAILABLE", text)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
