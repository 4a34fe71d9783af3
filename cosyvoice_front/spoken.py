"""One utterance on its way from the server to a client."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cosyvoice_client import AudioChunk
from cosyvoice_client.chunk import INCOMPLETE
from cosyvoice_client.encoders import Encoder, Samples
from cosyvoice_front import events
from cosyvoice_front.errors import SERVER, ApiError, broken
from cosyvoice_front.rate import RATE
from cosyvoice_front.speaker_words import SpeakerWords
from cosyvoice_runtime.audio.fade import FadeOut

logger = logging.getLogger(__name__)

FIRST_SAMPLES = 3 * RATE // 50
"""Encoded on their own, so that the first bytes don't wait until all of the first chunk is encoded."""
HAPPINESS = ("", "stop", "length", "repetition", INCOMPLETE)
"""Why a segment of the text ended, the happiest first."""


class Tally:
    """Speech that has been spoken so far.

    Attributes:
        token_rate: speech tokens of a second at speed 1; 0 where none have been spoken.
        left_s: seconds of the speech that a listener can decode from the bytes that have left.
        verification: of all segments that were verified, as a chunk has it; None of none.
        turns_s: seconds up to the end of each turn, or of each segment of a text.
        start_character: of the text, at which the speech begins, if it does not begin with the first.
        spoken_characters: of the text, that are spoken up to the last end of a segment; None before.
        heard: is told the seconds of each chunk, before they count here.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.token_rate = 0
        self.left_s = 0.0
        self.finish_reason = ""
        self.verification: dict[str, Any] | None = None
        self.turns_s: list[float] = []
        self.start_character: int | None = None
        self.spoken_characters: int | None = None
        self.heard: Callable[[float], None] = lambda _seconds: None

    def add(self, chunk: AudioChunk) -> None:
        self.heard(len(chunk.samples) / RATE)
        self.samples += len(chunk.samples)
        self.token_rate = chunk.token_rate
        if self.start_character is None:
            self.start_character = chunk.start_character
        if chunk.spoken_characters is not None:
            self.turns_s.append(self.seconds)
        if chunk.verification is not None:
            self.verification = _together(self.verification, chunk.verification)
        if _unhappiness(chunk.finish_reason) > _unhappiness(self.finish_reason):
            self.finish_reason = chunk.finish_reason

    def passed(self, chunk: AudioChunk) -> None:
        """Note that all samples of a chunk have gone out, but for what the encoder holds."""
        if chunk.spoken_characters is not None:
            self.spoken_characters = chunk.spoken_characters

    @property
    def seconds(self) -> float:
        return self.samples / RATE

    def tokens(self, speed: float) -> int:
        """Speech tokens that make as much speech at this speed."""
        return round(self.seconds * speed * self.token_rate)


@dataclass(frozen=True)
class Speech:
    """The file of an utterance, while it is made.

    Attributes:
        pieces: bytes of the file, none of them empty. Closing it cancels the utterance on the server.
        rate: samples per second.
        seed: with which the same request gives the same speech.
        note: what was done to its reference; empty for nothing.
        words: its words, with their times; None where nobody asks for them.
    """

    pieces: AsyncGenerator[bytes, None]
    tally: Tally
    rate: int
    seed: int | None
    note: str
    words: SpeakerWords | None = None


async def encoded(
    chunks: AsyncGenerator[AudioChunk, None],
    make: Callable[[], Encoder],
    pool: Executor,
    tally: Tally,
    *,
    instant: bool = False,
) -> AsyncGenerator[bytes, None]:
    """The file, piece by piece; what an encoder takes longer for runs in the pool.

    Before an error that comes behind the first piece, the speech fades out.

    Args:
        make: opens the encoder, which takes some milliseconds: in the pool, while the server makes the audio.
        instant: whether it takes no time, so that handing it to the pool would only hold up the request.
    """
    loop = asyncio.get_running_loop()
    making = loop.create_future() if instant else loop.run_in_executor(pool, make)
    if instant:
        making.set_result(make())
    fade, fed, started = FadeOut(RATE), 0, False
    try:
        async with aclosing(chunks):
            try:
                async for samples in slices(chunks, tally):
                    encoder = await asyncio.shield(making)
                    fade.hear(samples)
                    fed += len(samples)
                    if piece := await run(encoder, encoder.feed, pool, samples):
                        tally.left_s = fed / RATE - encoder.behind_s
                        yield piece
                        started = True
            except Exception:
                if started and (rest := await cut_off(await making, fade, pool)):
                    yield rest
                raise
            encoder = await asyncio.shield(making)
            if piece := await run(encoder, encoder.finish, pool):
                yield piece
    finally:
        if instant:
            making.result().close()
        else:  # Not here: a thread may still make it, or be in it, when a client leaves.
            making.add_done_callback(partial(_close, pool))


async def cut_off(encoder: Encoder, fade: FadeOut, pool: Executor) -> bytes:
    """The end of a file whose speech is cut: what the encoder holds, and the fade."""
    faded = await run(encoder, encoder.feed, pool, fade.rest())
    return faded + await run(encoder, encoder.finish, pool)


def _close(pool: Executor, made: asyncio.Future[Encoder]) -> None:
    if not made.cancelled() and made.exception() is None:
        with suppress(RuntimeError):  # of a pool that has been shut down
            pool.submit(made.result().close)


async def slices(chunks: AsyncIterator[AudioChunk], tally: Tally) -> AsyncIterator[Samples]:
    """The samples of all chunks, the first ones apart."""
    async for chunk in chunks:
        first = FIRST_SAMPLES if tally.samples == 0 else 0
        tally.add(chunk)
        for samples in np.split(chunk.samples, [first]):
            if len(samples):
                yield samples
        tally.passed(chunk)


async def as_events(
    pieces: AsyncGenerator[bytes, None],
    tally: Tally,
    characters: int,
    speed: float,
    speakers: Sequence[str] = (),
    words: SpeakerWords | None = None,
) -> AsyncGenerator[bytes, None]:
    """Server-sent events; a failure after the first of them is the last.

    Args:
        speakers: the voice of each turn, whose times the last event tells.
        words: of the speech, which are told behind their audio.
    """
    started, told_characters = False, None
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                reached = None if tally.spoken_characters == told_characters else tally.spoken_characters
                yield events.delta(piece, reached)
                started, told_characters = True, tally.spoken_characters
                for by, told in words.taken(tally.left_s) if words else ():
                    yield events.spoken_words(told, by)
    except Exception as error:
        if not started:
            raise
        yield events.failure(_told(error))
        return
    for by, told in words.taken(math.inf) if words else ():
        yield events.spoken_words(told, by)
    turns = list(zip(speakers, tally.turns_s, strict=False))
    usage = events.usage(characters, tally.tokens(speed))
    yield events.done(usage, tally.finish_reason, turns, tally.verification, tally.spoken_characters)


async def as_file(pieces: AsyncGenerator[bytes, None], tally: Tally) -> AsyncGenerator[bytes, None]:
    """The file alone, which only an error behind its last piece can tell to be incomplete.

    Raises:
        ApiError: the speech has stalled, and the rest of the text is not spoken.
    """
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece
    if tally.finish_reason == INCOMPLETE:
        raise ApiError(500, "The speech has stalled amid its text.", type=SERVER, code=INCOMPLETE)


async def placed(
    pieces: AsyncGenerator[bytes, None], place: AbstractAsyncContextManager[None]
) -> AsyncGenerator[bytes, None]:
    """The pieces, while a place is held: taken before the first of them, free when they end or are closed."""
    async with place, aclosing(pieces):
        async for piece in pieces:
            yield piece


def _told(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    logger.exception("failed after the first audio")
    return broken()


async def run(encoder: Encoder, call: Callable[..., bytes], pool: Executor, *arguments: Samples) -> bytes:
    """Call the encoder, in the pool if that takes longer than handing it over."""
    if encoder.instant:
        return call(*arguments)
    return await asyncio.get_running_loop().run_in_executor(pool, call, *arguments)


def _together(before: Mapping[str, Any] | None, chunk: Mapping[str, Any]) -> dict[str, Any]:
    """The verifications of segments as that of a text."""
    if before is None:
        return dict(chunk)
    return {
        "checked": before["checked"] and chunk["checked"],
        "redraws": before["redraws"] + chunk["redraws"],
        "findings": [*before["findings"], *chunk["findings"]],
    }


def _unhappiness(finish_reason: str) -> int:
    return HAPPINESS.index(finish_reason) if finish_reason in HAPPINESS else len(HAPPINESS)
