"""Asynchronous work for code that is not asynchronous itself."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import closing
from typing import Any, NoReturn

import pytest

from cosyvoice_runtime.process.event_loop import EventLoopThread

TIMEOUT_S = 60.0


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


def test_iteration_that_is_interrupted_before_it_waits_cancels_the_step(monkeypatch) -> None:
    ends: list[str] = []

    async def items() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ends.append("closed")

    with closing(EventLoopThread("interrupted")) as loop, closing(loop.iterate(items())) as numbers:
        assert next(numbers) == 1
        start = loop.start

        def interrupted(work: Coroutine[Any, Any, Any]) -> NoReturn:
            start(work)
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(loop, "start", interrupted)
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


def test_work_that_ends_the_program_ends_no_loop() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def answer() -> int:
        return 1

    loop = EventLoopThread("left")
    with pytest.raises(SystemExit):
        loop.start(leave()).result(TIMEOUT_S)
    assert loop.start(answer()).result(TIMEOUT_S) == 1
    loop.close()


def test_work_that_comes_while_it_closes_keeps_nobody_waiting() -> None:
    leaving, may_leave, never = threading.Event(), threading.Event(), asyncio.Event()

    async def leave_slowly() -> None:
        try:
            await never.wait()
        finally:
            leaving.set()
            await asyncio.to_thread(may_leave.wait)

    loop = EventLoopThread("closing")
    loop.start(leave_slowly())
    loop.run(asyncio.sleep(0))
    closing_it = threading.Thread(target=loop.close)
    closing_it.start()
    assert leaving.wait(TIMEOUT_S)
    late = never.wait()
    try:
        came_late = loop.start(late)
    except RuntimeError:
        came_late = None  # is an answer as well
        late.close()
    may_leave.set()
    closing_it.join()
    if came_late is not None:
        with pytest.raises(CancelledError):
            came_late.result(TIMEOUT_S)
