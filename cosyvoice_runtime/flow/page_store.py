"""Pages of keys and values and tails of convolutions, which utterances keep between calls of the flow.

A page holds what every attention layer, at every solver step and for each guidance row, computed
for one block of one utterance. Under the block-causal mask these never change again, so later blocks
read them instead of recomputing, and utterances of one voice share the pages of its prompt.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ZERO_PAGE = 0
"""The page that a row with fewer pages than another reads behind a mask; never written."""
WASTE_PAGE = 1
"""The page that padding writes; only rows whose results are dropped read it."""
FIRST_PAGE = 2


class FreePages:
    """A fixed number of pages, each with any number of holders; without one it is free. For any thread.

    Args:
        num_pages: the number without the two that have no holders.
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


Tails = Any
"""Last input frames of every convolution of one utterance; each runtime knows its own. Never overwritten."""
FLOW_PAGES = 64
"""Chunks of 1 s kept for incremental flow: prompt and speech of one utterance up to a minute."""


class PageStore(FreePages, ABC):
    """The pages of all utterances.

    Attributes:
        makes_room: has others give up pages that they can do without, until so many are free; whether they
            are, though another thread may take them.
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


@dataclass(frozen=True)
class Tail:
    """Place of one convolution's last input frames in the flat tail of an utterance."""

    offset: int
    frames: int
    channels: int

    @property
    def size(self) -> int:
        return self.frames * self.channels


class PastLayout:
    """Numbers the layers that look back; filled while a network is built."""

    def __init__(self, heads: int, head_dim: int) -> None:
        self.heads = heads
        self.head_dim = head_dim
        self.tail_size = 0
        self.attentions = 0

    def add_tail(self, frames: int, channels: int) -> Tail:
        """Reserve room for ``frames`` input frames of a convolution."""
        tail = Tail(self.tail_size, frames, channels)
        self.tail_size += tail.size
        return tail

    def add_attention(self) -> int:
        """Number the next attention layer."""
        self.attentions += 1
        return self.attentions - 1
