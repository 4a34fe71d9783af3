"""Slots, sizes, and what a released slot leaves behind."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.lm.cache import CacheFullError
from cosyvoice_runtime.lm.torch.kv_cache import KVCache, cache_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_size_is_known_before_allocation(config: SpeechLMConfig, dtype: torch.dtype) -> None:
    assert KVCache(config, 3, 17, dtype=dtype).bytes == cache_bytes(config, 3, 17, dtype)


def test_full_size_bfloat16_position_takes_12288_bytes() -> None:
    full = SpeechLMConfig(896, 4864, 24, 14, 2, 151936, 6561, 1e6, 1e-6, 32768, (5, 15))
    assert cache_bytes(full, 1, 1, torch.bfloat16) == 12288


def test_acquire_without_a_free_slot_fails(config: SpeechLMConfig) -> None:
    cache = KVCache(config, 1, 4)
    cache.acquire()
    with pytest.raises(CacheFullError, match="all 1 slots"):
        cache.acquire()


@given(st.lists(st.integers(0, 4), max_size=30))
def test_lowest_free_slot_is_taken(config: SpeechLMConfig, releases: list[int]) -> None:
    cache, taken = KVCache(config, 5, 1), set[int]()
    for release in releases:
        if release in taken:
            taken.remove(release)
            cache.release(release)
        elif cache.free_slots:
            expected = min(set(range(5)) - taken)
            assert cache.acquire() == expected
            taken.add(expected)
        assert cache.free_slots == 5 - len(taken)


def test_release_forgets_the_length(config: SpeechLMConfig) -> None:
    cache = KVCache(config, 2, 8)
    slot = cache.acquire()
    cache.lengths[slot] = 5
    cache.release(slot)
    assert cache.lengths[slot] == 0


def test_wipe_removes_values_of_that_slot_only(config: SpeechLMConfig) -> None:
    cache = KVCache(config, 2, 8)
    first, second = cache.acquire(), cache.acquire()
    cache.data.fill_(float("nan"))
    cache.release(first, wipe=True)
    assert torch.equal(cache.data[:, :, first], torch.zeros_like(cache.data[:, :, first]))
    assert cache.data[:, :, second].isnan().all()


def test_view_writes_into_its_slots_at_each_row_s_position(config: SpeechLMConfig) -> None:
    cache = KVCache(config, 4, 6)
    keys = torch.randn(2, 1, config.num_kv_heads, config.head_dim)
    cache.view(1, 3).at(torch.tensor([[5], [0]]), None).write(2, keys, 2 * keys)
    expected = torch.zeros_like(cache.data)
    for row, (slot, position) in enumerate([(1, 5), (2, 0)]):
        expected[2, 0, slot, :, position] = keys[row, 0]
        expected[2, 1, slot, :, position] = 2 * keys[row, 0]
    assert torch.equal(cache.data, expected)
