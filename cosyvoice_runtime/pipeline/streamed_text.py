"""The driver of an utterance whose text arrives while it is spoken."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.pipeline.hop import HopPolicy
from cosyvoice_runtime.pipeline.request import AudioChunk, SpeechRequest
from cosyvoice_runtime.pipeline.stages import Stages
from cosyvoice_runtime.pipeline.text_feeder import TextFeeder
from cosyvoice_runtime.pipeline.utterance import Speech


async def speak_arriving(
    request: SpeechRequest,
    feeder: TextFeeder,
    stages: Stages,
    hop: HopPolicy,
    sample_rate: int,
    cushion_s: Callable[[], float],
) -> AsyncGenerator[AudioChunk, None]:
    """Speak what the feeder is given, each chunk as soon as it is there, from the first clause on.

    The same clauses and marks with the same seed give the same audio, whenever they come. Closing the
    generator, or an error, frees the utterance in all stages.

    Args:
        request: how to speak; its text is not read.
        cushion_s: seconds of audio that the listener still has to play.

    Raises:
        Exception: what the feeder or a stage raised.
    """
    request = dataclasses.replace(request, sampling=_within_ceiling(request.sampling))
    speech = Speech(request, stages, hop, cushion_s)
    chunks = _chunks(speech, feeder, sample_rate)
    async with aclosing(beside(_read(feeder), chunks)) as spoken:
        async for chunk in spoken:
            feeder.source.spoke()
            yield chunk


async def _read(feeder: TextFeeder) -> None:
    await feeder.run()
    await feeder.source.until_cancelled()


async def _chunks(speech: Speech, feeder: TextFeeder, sample_rate: int) -> AsyncGenerator[AudioChunk, None]:
    index = 0
    while (segment := await feeder.next_segment()) is not None:
        async with aclosing(speech.segment(index, segment.prompt, segment.pieces)) as chunks:
            async for samples, reason in chunks:
                characters = None if reason is None else segment.characters
                yield AudioChunk(samples, sample_rate, index, reason, characters)
        index += 1


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


def _within_ceiling(sampling: SamplingOptions) -> SamplingOptions:
    """A limit that was asked for holds for every segment beside that of its length."""
    limits = [limit for limit in (sampling.max_tokens, sampling.ceiling) if limit is not None]
    return dataclasses.replace(sampling, max_tokens=None, ceiling=min(limits, default=None))
