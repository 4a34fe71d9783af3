"""Which slots of a key-value cache are taken, and how far each is written."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod

import numpy as np

from cosyvoice_runtime.errors import CosyVoiceError


class CacheFullError(CosyVoiceError):
    """Every slot of the cache is taken; one is free again when an utterance ends."""


class CacheSlots(ABC):
    """Slots of equal length, one per sequence.

    Attributes:
        slots: how many there are.
        max_len: positions of each.
        lengths: [slots] int64, positions written so far.
    """

    def __init__(self, slots: int, max_len: int) -> None:
        self.slots = slots
        self.max_len = max_len
        self.lengths = np.zeros(slots, dtype=np.int64)
        self._free = list(range(slots))

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Allocated memory."""

    @abstractmethod
    def wipe(self, slot: int) -> None:
        """Zero what a slot holds: a mask cannot hide NaN or infinity."""

    @property
    def free_slots(self) -> int:
        return len(self._free)

    def acquire(self) -> int:
        """Take the lowest free slot, so that the occupied ones stay close together.

        Raises:
            CacheFullError: no slot is free.
        """
        if not self._free:
            raise CacheFullError(f"all {self.slots} slots of the speech LM are taken")
        return heapq.heappop(self._free)

    def release(self, slot: int, wipe: bool = False) -> None:
        """Give a slot back, wiped or as it is."""
        if wipe:
            self.wipe(slot)
        self.lengths[slot] = 0
        heapq.heappush(self._free, slot)
