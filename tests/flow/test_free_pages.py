"""Pages that several threads take, share and release."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from cosyvoice_runtime.flow.page_store import FIRST_PAGE, FreePages

PAGES, THREADS = 12, 4


@pytest.fixture
def many_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("many_switches")
def test_no_page_is_two_threads_and_none_is_lost():
    pool = FreePages(PAGES)
    owners: dict[int, int] = {}

    def take_and_release(thread: int) -> None:
        random = Random(thread)
        for _ in range(3000):
            pages = pool.acquire(random.randint(0, 5))
            if pages is None:
                continue
            for page in pages:
                assert owners.setdefault(page, thread) == thread
            shared = pool.share(pages)
            pool.release(pages)
            assert all(owners[page] == thread for page in shared)
            for page in shared:
                del owners[page]
            pool.release(shared)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(take_and_release, range(THREADS)))
    assert pool.free_pages == PAGES
    assert sorted(pool.acquire(PAGES)) == list(range(FIRST_PAGE, FIRST_PAGE + PAGES))


def test_fewer_than_are_asked_for_are_not_given():
    pool = FreePages(PAGES)
    taken = pool.acquire(PAGES - 1)
    assert pool.acquire(2) is None
    pool.share(taken)
    pool.release(taken)
    assert pool.free_pages == 1
    pool.release(taken)
    assert pool.free_pages == PAGES
