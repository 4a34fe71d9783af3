"""Which pages are free: bookkeeping of the keys and values of blocks that are done.

A page holds what every attention layer, at every solver step and for both guidance rows, computed
for one block of one utterance. Under the block-causal mask these never change again, so later blocks
read them instead of recomputing, and utterances of one voice share the pages of its prompt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

GUIDANCE_ROWS = 2
"""Rows of the estimator for one utterance: with its conditions, and without."""
ZERO_PAGE = 0
"""Read, behind a mask, where a row of a batch has fewer pages than another; never written."""
WASTE_PAGE = 1
"""Written by the padded frames of a batch; read only by rows without an utterance."""
FIRST_PAGE = 2

Tails = Any
"""Last input frames of every convolution of one utterance; each runtime knows its own. Never overwritten."""


class PageStore(ABC):
    """A fixed number of pages; a page is free when nobody holds it."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(FIRST_PAGE, FIRST_PAGE + num_pages))[::-1]
        self._holders = [0] * (FIRST_PAGE + num_pages)

    @property
    @abstractmethod
    def page_bytes(self) -> int:
        """Memory of one page, that is of one block of one utterance."""

    @abstractmethod
    def empty_tails(self) -> Tails:
        """Tails at the start of an utterance: zeros, as the convolutions are padded there."""

    @abstractmethod
    def clear(self, page: int) -> None:
        """To be called for a page that will not be filled: a masked value is multiplied by 0, and 0 * NaN is
        NaN.
        """

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def acquire(self, count: int) -> list[int] | None:
        """Take ``count`` pages, or None if there are not as many. What others left is still in them."""
        if count > len(self._free):
            return None
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._holders[page] = 1
        return pages

    def share(self, pages: Sequence[int]) -> list[int]:
        """Hold pages that another holds already; they must not be written again."""
        for page in pages:
            self._holders[page] += 1
        return list(pages)

    def release(self, pages: Sequence[int]) -> None:
        for page in pages:
            self._holders[page] -= 1
            if not self._holders[page]:
                self._free.append(page)
