"""Pages of a store, by their numbers: which are free, and two that nobody holds."""

from __future__ import annotations

import threading
from collections.abc import Sequence

ZERO_PAGE = 0
"""Read, behind a mask, where a row of a batch has fewer pages than another; never written."""
WASTE_PAGE = 1
"""Written by what is there for padding; read only by rows whose results nobody wants."""
FIRST_PAGE = 2


class FreePages:
    """A fixed number of pages; several may hold one, and it is free when nobody does. For any thread.

    Args:
        num_pages: beside the two that nobody holds.
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(FIRST_PAGE, FIRST_PAGE + num_pages))[::-1]
        self._holders = [0] * (FIRST_PAGE + num_pages)
        self._lock = threading.Lock()

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def acquire(self, count: int) -> list[int] | None:
        """Take ``count`` free pages, with what was left in them; if there are fewer, none, and give None."""
        with self._lock:
            if count > len(self._free):
                return None
            pages = [self._free.pop() for _ in range(count)]
            for page in pages:
                self._holders[page] = 1
            return pages

    def share(self, pages: Sequence[int]) -> list[int]:
        """Hold pages that another holds already; they must not be written again."""
        with self._lock:
            for page in pages:
                self._holders[page] += 1
        return list(pages)

    def release(self, pages: Sequence[int]) -> None:
        """Hold these no longer: to be called once by each holder."""
        with self._lock:
            for page in pages:
                self._holders[page] -= 1
                if not self._holders[page]:
                    self._free.append(page)
