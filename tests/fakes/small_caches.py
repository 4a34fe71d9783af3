"""Small caches of the speech LM: random pages of one layer, slots with their own or shared."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.flow.page_store import FIRST_PAGE, WASTE_PAGE, ZERO_PAGE
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.torch.kv_cache import KVCache, LayerPages, PagedKVCache, PageTables

MAX_LEN = 64


def random_layer(held: Sequence[int], page: int, kv_heads: int, head_dim: int) -> LayerPages:
    """Random keys and values in pages that lie anyhow.

    Args:
        held: pages of each slot.
    """
    width = -(-MAX_LEN // page)
    numbers = iter((FIRST_PAGE + torch.randperm(len(held) * width)).tolist())
    read = torch.full((len(held), width), ZERO_PAGE, dtype=torch.int32)
    for slot, count in enumerate(held):
        for place in range(count):
            read[slot, place] = next(numbers)
    keys, values = torch.randn(2, FIRST_PAGE + len(held) * width, kv_heads, page, head_dim)
    keys[ZERO_PAGE] = values[ZERO_PAGE] = 0
    return LayerPages(keys, values, PageTables(read, read.clamp(min=WASTE_PAGE)))


def own_slots(config: SpeechLMConfig, slots: int) -> KVCache:
    return KVCache(config, slots, MAX_LEN)


def shared_pages(config: SpeechLMConfig, slots: int) -> KVCache:
    """All slots have all their pages, taken in turns."""
    cache = PagedKVCache(config, slots, MAX_LEN, CachePool.of(slots * MAX_LEN, page=16))
    for positions in range(1, MAX_LEN + 1):
        for slot in range(slots):
            cache.pages.reserve(slot, positions)
    cache.prepare()
    return cache
