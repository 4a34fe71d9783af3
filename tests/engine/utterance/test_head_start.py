"""A first chunk waits until the second will follow in time, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np
import pytest

from cosyvoice_runtime.engine.speech_engine import SecondChunk, with_head_start
from cosyvoice_runtime.engine.utterance.request import AudioChunk

RATE = 10
FOR_EVER_S = 3600.0


def chunk(number: int, samples: int = 1) -> AudioChunk:
    return AudioChunk(np.full(samples, number, np.float32), RATE, 0)


class Speech:
    """Chunks, of which all but the first wait to be let go."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.made, self.let_go, self.closed = asyncio.Event(), asyncio.Event(), False
        self._count, self._error = count, error

    async def chunks(self) -> AsyncGenerator[AudioChunk, None]:
        try:
            for number in range(self._count):
                if number:
                    self.made.set()
                    await self.let_go.wait()
                yield chunk(number)
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True


def numbers(chunks: list[AudioChunk]) -> list[float]:
    return [each.samples[0].item() for each in chunks]


def test_first_chunk_waits_for_the_second_that_would_come_too_late():
    async def run() -> tuple[list[AudioChunk], list[AudioChunk]]:
        speech, heard = Speech(3), []

        async def listen() -> None:
            async for each in with_head_start(speech.chunks(), lambda: FOR_EVER_S):
                heard.append(each)

        listening = asyncio.create_task(listen())
        await speech.made.wait()
        before = list(heard)
        speech.let_go.set()
        await listening
        return before, heard

    before, heard = asyncio.run(run())
    assert before == []
    assert numbers(heard) == [0, 1, 2]


@pytest.mark.parametrize("expected_s", [0.0, 1 / RATE])
def test_first_chunk_that_lasts_long_enough_leaves_at_once(expected_s):
    async def run() -> AudioChunk:
        async with aclosing(with_head_start(Speech(2).chunks(), lambda: expected_s)) as chunks:
            return await anext(chunks)

    assert numbers([asyncio.run(run())]) == [0]


@pytest.mark.parametrize("count", [0, 1])
def test_speech_of_less_than_two_chunks_waits_for_nothing(count):
    async def run() -> list[AudioChunk]:
        return [each async for each in with_head_start(Speech(count).chunks(), lambda: FOR_EVER_S)]

    assert numbers(asyncio.run(run())) == list(range(count))


def test_listener_who_leaves_meanwhile_ends_the_speech():
    async def run() -> Speech:
        speech = Speech(2)

        async def listen() -> None:
            async with aclosing(with_head_start(speech.chunks(), lambda: FOR_EVER_S)) as chunks:
                await anext(chunks)

        listening = asyncio.create_task(listen())
        await speech.made.wait()
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        return speech

    assert asyncio.run(run()).closed


def test_first_chunk_is_heard_before_an_error():
    async def run() -> list[AudioChunk]:
        chunks = with_head_start(Speech(1, ValueError("broken")).chunks(), lambda: FOR_EVER_S)
        heard = [await anext(chunks)]
        with pytest.raises(ValueError, match="broken"):
            await anext(chunks)
        return heard

    assert numbers(asyncio.run(run())) == [0]


def test_nothing_is_expected_before_the_first_utterance():
    assert SecondChunk().expected_s == 0


def test_even_times_are_expected_as_they_were_and_uneven_ones_longer():
    even, uneven = SecondChunk(), SecondChunk()
    for number in range(60):
        even.took(0.1)
        uneven.took(0.05 if number % 2 else 0.15)
    assert even.expected_s == pytest.approx(0.1, abs=1e-3)
    assert uneven.expected_s > 0.15


def test_machine_that_has_become_slower_is_soon_known_to_be():
    second = SecondChunk()
    for _ in range(60):
        second.took(0.1)
    for _ in range(20):
        second.took(0.2)
    assert second.expected_s > 0.18


def test_time_of_the_second_chunk_is_told_and_of_an_only_one_is_not():
    async def run(count: int) -> list[float]:
        told: list[float] = []
        speech = Speech(count)
        speech.let_go.set()
        async for _ in with_head_start(speech.chunks(), lambda: 0.0, told.append):
            pass
        return told

    [seconds] = asyncio.run(run(3))
    assert seconds >= 0
    assert asyncio.run(run(1)) == []
