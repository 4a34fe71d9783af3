"""How many utterances may be in progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cosyvoice_runtime.errors import OverloadedError


class Admission:
    """Places with a limit, for one event loop. Refusing at once tells a client to try elsewhere."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.count = 0
        """Utterances in progress."""

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place.

        Raises:
            OverloadedError: none is free.
        """
        if self.count >= self._limit:
            raise OverloadedError(f"{self.count} utterances are in progress, the limit; try again later")
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
