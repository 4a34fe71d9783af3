"""Work alongside chunks: whatever ends one of both lets the other end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from cosyvoice_runtime.engine.utterance.streamed_text import alongside


async def slow_to_end(cleaned: list[int]) -> AsyncGenerator[int, None]:
    try:
        yield 1
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.05)
        cleaned.append(1)


@pytest.mark.parametrize("steps", range(6))
def test_cancel_while_chunks_are_being_ended_is_heard_and_lets_them_end(steps):
    cleaned: list[int] = []

    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise OSError("no text")

    async def hear() -> None:
        async with aclosing(alongside(fail(), slow_to_end(cleaned))) as chunks:
            async for _ in chunks:
                pass

    async def use() -> bool:
        hearing = asyncio.create_task(hear())
        await asyncio.sleep(0.02)  # it is being ended
        for _ in range(steps):
            await asyncio.sleep(0)
        hearing.cancel()
        await asyncio.wait([hearing])
        return hearing.cancelled() or isinstance(hearing.exception(), OSError)

    assert asyncio.run(use())
    assert cleaned == [1]


def test_cancel_while_the_work_beside_chunks_is_being_ended_is_not_forgotten():
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)

    async def chunks() -> AsyncGenerator[int, None]:
        yield 1

    async def hear() -> None:
        async with aclosing(alongside(work(), chunks())) as spoken:
            async for _ in spoken:
                pass

    async def use() -> bool:
        hearing = asyncio.create_task(hear())
        await asyncio.sleep(0.02)
        hearing.cancel()
        await asyncio.wait([hearing])
        return hearing.cancelled()

    assert asyncio.run(use())
