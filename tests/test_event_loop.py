"""Asynchronous work for code that is not asynchronous itself."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing

import pytest

from cosyvoice_runtime.event_loop import EventLoopThread


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As a terminal's program is; one in the background may have been told to ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupted_iteration_cancels_the_step_and_closes_the_generator() -> None:
    ends: list[str] = []
    main = threading.get_ident()

    async def items() -> AsyncGenerator[int, None]:
        try:
            yield 1
            signal.pthread_kill(main, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("closed")

    with closing(EventLoopThread("interrupted")) as loop, closing(loop.iterate(items())) as numbers:
        assert next(numbers) == 1
        with pytest.raises(KeyboardInterrupt):
            next(numbers)
        assert ends == ["closed"]


def test_iteration_ends_with_the_items_or_when_it_is_abandoned() -> None:
    ends: list[str] = []

    async def items() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        finally:
            ends.append("closed")

    with closing(EventLoopThread("items")) as loop:
        assert list(loop.iterate(items())) == [1, 2]
        numbers = loop.iterate(items())
        next(numbers)
        numbers.close()
        assert ends == ["closed"] * 2
