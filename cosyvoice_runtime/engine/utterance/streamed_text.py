"""Text that arrives while it is spoken: its feeder and the driver's chunks together."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any

from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.engine.utterance.text_feeder import TextFeeder
from cosyvoice_runtime.lm.sampling import SamplingOptions


async def speak_arriving(
    feeder: TextFeeder, chunks: AsyncGenerator[AudioChunk, None]
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks of what a feeder passes on, each as soon as it is there, from the first clause on.

    Args:
        feeder: its sink is what the chunks are spoken from.

    Raises:
        Exception: what the feeder or the driver raised.
    """
    async with aclosing(beside(_read(feeder), chunks)) as spoken:
        async for chunk in spoken:
            feeder.source.spoke()
            ended = chunk.finish_reason is not None
            characters = feeder.characters[chunk.segment] if ended else None
            yield dataclasses.replace(chunk, spoken_characters=characters)


async def _read(feeder: TextFeeder) -> None:
    await feeder.run()
    await feeder.source.until_cancelled()


async def beside(
    work: Coroutine[Any, Any, None], chunks: AsyncGenerator[AudioChunk, None]
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks, while something else goes on whose failure ends them at once."""
    task = asyncio.create_task(work)
    try:
        while (chunk := await _next(task, chunks)) is not None:
            yield chunk
    finally:
        try:
            await _end(task)
        finally:
            await chunks.aclose()


async def _next(task: asyncio.Task[None], chunks: AsyncGenerator[AudioChunk, None]) -> AudioChunk | None:
    """The next chunk; None at the end."""
    chunk = asyncio.ensure_future(anext(chunks, None))
    try:
        if not task.done():
            await asyncio.wait([task, chunk], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return await chunk
    finally:
        await _end(chunk)


async def _end(work: asyncio.Future[Any]) -> None:
    """Cancel it and wait for its end, also where that is cancelled: what is freed then must not be in use.

    Raises:
        CancelledError: whoever waits was cancelled meanwhile.
    """
    work.cancel()
    cancelled = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if not work.cancelled():
        work.exception()  # told by nobody, and logged by nobody
    if cancelled is not None:
        raise cancelled


def within_ceiling(sampling: SamplingOptions) -> SamplingOptions:
    """A limit that was asked for holds for every segment beside that of its length."""
    limits = [limit for limit in (sampling.max_tokens, sampling.ceiling) if limit is not None]
    return dataclasses.replace(sampling, max_tokens=None, ceiling=min(limits, default=None))
