"""Which pages are free: bookkeeping of the keys and values of blocks that are done.

A page holds what every attention layer, at every solver step and for both guidance rows, computed
for one block of one utterance. Under the block-causal mask these never change again, so later blocks
read them instead of recomputing, and utterances of one voice share the pages of its prompt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from cosyvoice_runtime.flow.free_pages import FreePages

GUIDANCE_ROWS = 2
"""Rows of the estimator for one utterance: with its conditions, and without."""
Tails = Any
"""Last input frames of every convolution of one utterance; each runtime knows its own. Never overwritten."""
FLOW_PAGES = 64
"""Chunks of 1 s kept for incremental flow: prompt and speech of one utterance up to a minute."""


class PageStore(FreePages, ABC):
    """The pages of all utterances.

    Attributes:
        makes_room: has others give up pages that they can do without, until so many are free; whether it may
            be worth while to ask again.
    """

    def __init__(self, num_pages: int) -> None:
        super().__init__(num_pages)
        self.makes_room: Callable[[int], bool] = lambda _: False

    def take(self, count: int) -> list[int] | None:
        """:meth:`acquire` so many, which others make room for; None if there are none left that could."""
        while (pages := self.acquire(count)) is None:
            if count > self.num_pages or not self.makes_room(count):
                return None
        return pages

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
