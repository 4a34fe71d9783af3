"""Keys and values of every sequence being decoded, allocated once and written in place."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import SpeechLMConfig
from cosyvoice_runtime.errors import CosyVoiceError


class CacheFullError(CosyVoiceError):
    """Every slot of the cache is taken; one is free again when an utterance ends."""


def cache_bytes(config: SpeechLMConfig, slots: int, max_len: int, dtype: torch.dtype) -> int:
    """Memory of a cache with these dimensions (12,288 bytes per position at full size in bfloat16)."""
    values = config.num_layers * 2 * slots * config.num_kv_heads * max_len * config.head_dim
    return values * dtype.itemsize


class CacheView:
    """Consecutive slots of a cache; sequence ``b`` of a batch lives in slot ``first + b``."""

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self.max_len = data.shape[4]
        self._slots = torch.arange(data.shape[2], device=data.device)[:, None]

    def write(self, layer: int, positions: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [B, T, kv_heads, head_dim] at positions [B, T] of their slots."""
        self.data[layer, 0][self._slots, :, positions] = keys
        self.data[layer, 1][self._slots, :, positions] = values

    def read(self, layer: int, span: int) -> tuple[Tensor, Tensor]:
        """Keys and values [B, kv_heads, span, head_dim] of the first ``span`` positions, without a copy."""
        keys, values = self.data[layer, :, :, :, :span]
        return keys, values


class GatheredView(CacheView):
    """Any slots of a cache, in any order; reading them copies."""

    def __init__(self, data: Tensor, slots: Tensor) -> None:
        self.data = data
        self.max_len = data.shape[4]
        self._slots = slots[:, None]

    def read(self, layer: int, span: int) -> tuple[Tensor, Tensor]:
        keys, values = self.data[layer][:, self._slots[:, 0], :, :span]
        return keys, values


class KVCache:
    """Slots of equal length, one per sequence.

    Attributes:
        data: [layers, 2, slots, kv_heads, max_len, head_dim], keys then values.
        lengths: [slots] int64 on the host, positions written so far.
    """

    def __init__(
        self,
        config: SpeechLMConfig,
        slots: int,
        max_len: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        shape = (config.num_layers, 2, slots, config.num_kv_heads, max_len, config.head_dim)
        # Zeros, not empty: attention weighs a masked position by 0, and 0 * nan is nan.
        self.data = torch.zeros(shape, device=device, dtype=dtype)
        self.slots = slots
        self.max_len = max_len
        self.lengths = np.zeros(slots, dtype=np.int64)
        self._free = list(range(slots))

    @property
    def bytes(self) -> int:
        """Allocated memory."""
        return self.data.nbytes

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
        """Give a slot back; ``wipe`` if it may hold nan or inf, which a mask doesn't hold back."""
        if wipe:
            self.data[:, :, slot].zero_()
        self.lengths[slot] = 0
        heapq.heappush(self._free, slot)

    def view(self, start: int, stop: int) -> CacheView:
        """Slots ``start`` to ``stop`` (exclusive), sharing this cache's memory."""
        return CacheView(self.data[:, :, start:stop])

    def gathered(self, slots: Sequence[int]) -> GatheredView:
        """These slots, sharing this cache's memory."""
        return GatheredView(self.data, torch.tensor(slots, device=self.data.device))
