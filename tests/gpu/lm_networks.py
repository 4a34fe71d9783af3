"""The speech LM in bfloat16 and in float32, with caches that hold random speech; in slots and in pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.lm.cache import PAGE, CachePool
from cosyvoice_runtime.lm.torch.kv_cache import KVCache, PagedKVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM


class Networks:
    """The network in bfloat16, and in float32 with the same weights.

    Args:
        max_len: positions of a slot.
    """

    def __init__(self, checkpoint: Path, max_len: int) -> None:
        if torch.cuda.get_device_capability() < (8, 0):
            pytest.skip("a GPU of compute capability 8.0")
        config = load_config(checkpoint)
        tensors = load_tensors(Layout(checkpoint), "llm", config)
        half, single = (
            SpeechLM.from_tensors(config.speech_lm, tensors, "cuda", torch.bfloat16) for _ in range(2)
        )
        self.half, self.single = half, single.float()
        self._max_len = max_len

    def caches(self, slots: int, filled: Sequence[int]) -> tuple[KVCache, KVCache]:
        """Of both, with the keys and values of random speech in each slot."""
        config = self.half.config
        half = KVCache(config, slots, self._max_len, "cuda", torch.bfloat16)
        generator = torch.Generator().manual_seed(len(filled))
        for slot, length in enumerate(filled):
            if length:
                ids = torch.randint(config.speech_tokens, (length,), generator=generator).cuda()
                self.half.prefill(self.half.speech_embedding(ids), 0, half.view(slot, slot + 1))
        single = KVCache(config, slots, self._max_len, "cuda")
        single.data.copy_(half.data)
        return half, single

    def in_pages(self, cache: KVCache, ends: Sequence[int], backwards: bool = False) -> PagedKVCache:
        """The same slots in pages taken in turns, as many as each needs for its positions."""
        pool = CachePool.of(cache.slots * self._max_len)
        paged = PagedKVCache(
            self.half.config, cache.slots, self._max_len, pool, cache.data.device, cache.data.dtype
        )
        slots = list(enumerate(ends))[:: -1 if backwards else 1]
        for length in range(PAGE, self._max_len + 1, PAGE):
            for slot, end in slots:
                assert paged.pages.reserve(slot, min(length, end))
        paged.prepare()
        for slot, end in slots:
            for place, page in enumerate(paged.pages.table[slot, : -(-end // PAGE)].tolist()):
                paged.data[:, :, page] = cache.data[:, :, slot, :, place * PAGE : (place + 1) * PAGE]
        return paged


def move_pages(paged: PagedKVCache, other: PagedKVCache) -> None:
    """Let its pages lie where those of another cache with the same content do."""
    paged.data.copy_(other.data)
    paged.pages.table[:] = other.pages.table
    paged.pages.changed = True
    paged.prepare()


def far(x: Tensor, expected: Tensor) -> float:
    """|difference| / |expected|."""
    return float((x.float() - expected).norm() / expected.norm())
