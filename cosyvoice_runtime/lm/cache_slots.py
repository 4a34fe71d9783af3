"""Which slots of a key-value cache are taken, how far each is written, and the pages that it holds."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm.cache_pages import CachePool, PageLedger


class CacheFullError(CosyVoiceError):
    """Every slot of the cache is taken; one is free again when an utterance ends."""


class CacheUse(NamedTuple):
    """Use of the cache.

    Attributes:
        pages, held: of the pool, and those that slots hold.
        without: slots that are taken and hold none.
        evictions: slots that have lost their pages so far.
        recomputed: positions fed once more, so far, because of that.
    """

    pages: int
    held: int
    without: int
    evictions: int
    recomputed: int


class CacheSlots(ABC):
    """A slot for each sequence, with a pool of pages that they share.

    Attributes:
        slots: how many there are.
        max_len: most positions of each.
        lengths: [slots] int64, positions written so far.
        pages: what each slot holds of the pool.
        evictions, recomputed: of `CacheUse`.

    Args:
        pool: None: a page of ``max_len`` positions for each slot, which is its own.
    """

    def __init__(self, slots: int, max_len: int, pool: CachePool | None = None) -> None:
        self.slots = slots
        self.max_len = max_len
        self.lengths = np.zeros(slots, dtype=np.int64)
        self.pages = PageLedger(slots, max_len, pool or CachePool(max_len, slots))
        self.evictions = self.recomputed = 0
        self._free = list(range(slots))

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Allocated memory."""

    @abstractmethod
    def wipe(self, slot: int) -> None:
        """Zero what a slot holds: a mask cannot hide NaN or infinity."""

    def tidy(self) -> None:  # noqa: B027 - nothing, where no pages are shared
        """Do at once what the next pass would have to do first, for nobody waits for it now."""

    @property
    def free_slots(self) -> int:
        return len(self._free)

    @property
    def use(self) -> CacheUse:
        """As it is now."""
        pages = self.pages
        without = self.slots - self.free_slots - len(pages.holding)
        return CacheUse(pages.total, pages.total - pages.free, without, self.evictions, self.recomputed)

    def acquire(self) -> int:
        """Take the lowest free slot, so that the occupied ones stay close together.

        Raises:
            CacheFullError: no slot is free.
        """
        if not self._free:
            raise CacheFullError(f"all {self.slots} slots of the speech LM are taken")
        return heapq.heappop(self._free)

    def release(self, slot: int, wipe: bool = False) -> None:
        """Give a slot and its pages back, wiped or as it is."""
        if wipe:
            self.wipe(slot)
        self.lengths[slot] = 0
        self.pages.release(slot)
        heapq.heappush(self._free, slot)

    def evict(self, slot: int) -> int:
        """Take a slot's pages back, and with them what was written; returns how many positions."""
        lost = int(self.lengths[slot])
        self.lengths[slot] = 0
        self.pages.release(slot)
        self.evictions += 1
        return lost
