"""The cache that settings ask for."""

from __future__ import annotations

from functools import partial

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.cache import PAGE, CachePool
from cosyvoice_runtime.lm.engines.engine import check_cache_room, shared_pool
from cosyvoice_runtime.settings import TensorrtLlmSettings


def settings(slots: int, longest: int, cache: int) -> TensorrtLlmSettings:
    return TensorrtLlmSettings(
        max_slots=slots, max_tokens=longest, max_sequence_tokens=longest, kv_cache_tokens=cache
    )


@pytest.mark.parametrize(
    ("slots", "longest", "cache", "read", "copied"),
    [
        (64, 4096, 64 * 4096, CachePool(PAGE, 64 * 32), None),
        (256, 4096, 64 * 4096, CachePool(PAGE, 64 * 32), CachePool(PAGE, 64 * 32)),
        (64, 100, 6400, CachePool(PAGE, 64), None),
        (64, 100, 6399, CachePool(PAGE, 50), CachePool(PAGE, 50)),
        (4, 200, 200, CachePool(PAGE, 2), CachePool(PAGE, 2)),
    ],
    ids=["all fit", "more slots", "shorter than a page", "not quite", "one request"],
)
def test_pages_are_for_steps_that_read_them_and_for_slots_that_do_not_all_fit(
    slots: int, longest: int, cache: int, read: CachePool, copied: CachePool | None
) -> None:
    """Where all fit they all fit in whole pages, too."""
    asked = settings(slots, longest, cache)
    assert shared_pool(asked, steps_read_pages=True) == read
    assert shared_pool(asked, steps_read_pages=False) == copied


@pytest.mark.parametrize("shares_pages", [False, True])
def test_cache_that_just_suffices_for_the_longest_request_of_one_slot_is_accepted(shares_pages) -> None:
    check = partial(check_cache_room, shares_pages=shares_pages)
    check(settings(1, 256, 256), max_positions=256)
    with pytest.raises(InvalidInput, match="kv_cache_tokens"):
        check(settings(1, 256, 255), max_positions=256)
    with pytest.raises(InvalidInput, match="max_sequence_tokens"):
        check(settings(1, 256, 256), max_positions=255)
