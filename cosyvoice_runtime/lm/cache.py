"""Slots of a key-value cache, and the pages that each holds. This is bookkeeping on the host, without keys
and values."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.flow.page_store import ZERO_PAGE, FreePages

PAGE = 128
"""Positions of a page. The attention kernel takes at most as many keys at a time, and they lie in one page.
Half of a sequence's last page is unused on average: 64 positions of some hundreds."""


class CachePool(NamedTuple):
    """Positions of a page, and pages that all slots share."""

    page: int
    pages: int

    @classmethod
    def of(cls, positions: int, page: int = PAGE) -> CachePool:
        """A pool with as few pages as hold so many positions."""
        return cls(page, -(-positions // page))


class PageLedger:
    """Pages that slots take as they grow, and give back together.

    Attributes:
        page: positions of a page.
        table: [slots, most pages of a slot] int32, each slot's pages in the order of its positions;
            `ZERO_PAGE` where it has none.
        held: [slots] int64, number of pages of each.
        room: [slots] int64, positions that the pages hold; at most ``max_len``.
        holding: slots that have any page.
        changed: whether the table has changed since its reader last set this to False.

    Raises:
        ValueError: the pool does not hold one slot of ``max_len`` positions.
    """

    def __init__(self, slots: int, max_len: int, pool: CachePool) -> None:
        self.page = pool.page
        width = -(-max_len // pool.page)
        if pool.pages < width:
            raise ValueError(f"{pool.pages} pages of {pool.page} positions hold no slot of {max_len}")
        self.table = np.full((slots, width), ZERO_PAGE, dtype=np.int32)
        self.held = np.zeros(slots, dtype=np.int64)
        self.room = np.zeros(slots, dtype=np.int64)
        self.holding: set[int] = set()
        self._max_len = max_len
        self.changed = True
        self._pages = FreePages(pool.pages)
        self._returned: set[int] = set()

    @property
    def total(self) -> int:
        """Pages of the pool."""
        return self._pages.num_pages

    @property
    def free(self) -> int:
        return self._pages.free_pages

    @property
    def can_grow(self) -> int:
        """Number of slots that hold a page, and fewer than a slot may."""
        return int(np.count_nonzero((self.held > 0) & (self.held < self.table.shape[1])))

    def needed(self, positions: int) -> int:
        """Pages of a slot with so many positions."""
        return -(-positions // self.page)

    def reserve(self, slot: int, positions: int) -> bool:
        """Let a slot have pages for so many positions in all; False, and no change, if too few are free."""
        held = int(self.held[slot])
        missing = self.needed(positions) - held
        if missing <= 0:
            return True
        pages = self._pages.acquire(missing)
        if pages is None:
            return False
        self.table[slot, held : held + missing] = pages
        self._hold(slot, held + missing)
        return True

    def release(self, slot: int) -> None:
        """Take all of a slot's pages back."""
        held = int(self.held[slot])
        if not held:
            return
        pages = self.table[slot, :held].tolist()
        self._pages.release(pages)
        self._returned.update(pages)
        self.table[slot] = ZERO_PAGE
        self._hold(slot, 0)

    def _hold(self, slot: int, pages: int) -> None:
        self.held[slot] = pages
        self.room[slot] = min(pages * self.page, self._max_len)
        self.holding.add(slot) if pages else self.holding.discard(slot)
        self.changed = True

    def take_returned(self) -> list[int]:
        """Pages that were released since the last call, also if others have taken them since."""
        pages, self._returned = sorted(self._returned), set()
        return pages


class CacheFullError(CosyVoiceError):
    """Every slot of the cache is taken, until an utterance ends."""


class CacheUse(NamedTuple):
    """The use of the cache.

    Attributes:
        pages, held: pages of the pool, and how many of them slots hold.
        without: slots that are taken and hold no page.
        evictions: times that a slot has lost its pages.
        recomputed: positions fed once more because of that.
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
        adapters: [slots] int32, number of the adapter of each slot's sequence; 0 for none, or a free slot.
        evictions, recomputed: counters, as in `CacheUse`.

    Args:
        pool: None: a page of ``max_len`` positions for each slot, which is its own.
    """

    def __init__(self, slots: int, max_len: int, pool: CachePool | None = None) -> None:
        self.slots = slots
        self.max_len = max_len
        self.lengths = np.zeros(slots, dtype=np.int64)
        self.pages = PageLedger(slots, max_len, pool or CachePool(max_len, slots))
        self.adapters = np.zeros(slots, dtype=np.int32)
        self.evictions = self.recomputed = 0
        self._free = list(range(slots))

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Bytes of allocated memory."""

    @abstractmethod
    def wipe(self, slot: int) -> None:
        """Zero what a slot holds: a mask cannot hide NaN or infinity."""

    def tidy(self) -> None:  # noqa: B027 - nothing, where no pages are shared
        """Do work of the next pass at once, while no sequence waits."""

    @property
    def free_slots(self) -> int:
        return len(self._free)

    @property
    def use(self) -> CacheUse:
        """Present use of the cache."""
        pages = self.pages
        without = self.slots - self.free_slots - len(pages.holding)
        return CacheUse(pages.total, pages.total - pages.free, without, self.evictions, self.recomputed)

    def acquire(self, adapter: int = 0) -> int:
        """Take the lowest free slot, so that the occupied ones stay close together; a CacheFullError if none
        is free."""
        if not self._free:
            raise CacheFullError(f"all {self.slots} slots of the speech LM are taken")
        slot = heapq.heappop(self._free)
        self.adapters[slot] = adapter
        return slot

    def release(self, slot: int, wipe: bool = False) -> None:
        """Give a slot and its pages back, wiped or as it is."""
        if wipe:
            self.wipe(slot)
        self.lengths[slot] = self.adapters[slot] = 0
        self.pages.release(slot)
        heapq.heappush(self._free, slot)

    def evict(self, slot: int) -> int:
        """Take a slot's pages back; returns the number of positions that it loses."""
        lost = int(self.lengths[slot])
        self.lengths[slot] = 0
        self.pages.release(slot)
        self.evictions += 1
        return lost
