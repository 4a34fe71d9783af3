"""A server whose speech has another rate than OpenAI's: what leaves the front has one rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import numpy as np
import soxr

from cosyvoice_client import AudioChunk
from cosyvoice_front.rate import RATE, at_front_rate
from decoded import decode
from fake_upstream import tone

OTHER = 22_050
CHUNKS = [
    AudioChunk(tone(0.2), 0.1, "", None, OTHER),
    AudioChunk(tone(0.3), 0.2, "stop", 5, OTHER),
    AudioChunk(tone(0.1), 0.3, "length", 9, OTHER),
]


def heard(chunks: Sequence[AudioChunk]) -> list[AudioChunk]:
    async def given() -> AsyncIterator[AudioChunk]:
        for chunk in chunks:
            yield chunk

    async def collect() -> list[AudioChunk]:
        return [chunk async for chunk in at_front_rate(given())]

    return asyncio.run(collect())


def test_speech_of_the_fronts_rate_goes_through_as_it_is() -> None:
    chunks = [AudioChunk(tone(0.2), 0.1), AudioChunk(tone(0.3), 0.2, "stop")]
    assert heard(chunks) == chunks


def test_each_segment_is_resampled_as_a_whole() -> None:
    found = heard(CHUNKS)
    assert [(chunk.finish_reason, chunk.spoken_characters, chunk.sample_rate) for chunk in found] == [
        ("", None, RATE),
        ("stop", 5, RATE),
        ("length", 9, RATE),
    ]
    for part, given in ((found[:2], CHUNKS[:2]), (found[2:], CHUNKS[2:])):
        samples = np.concatenate([chunk.samples for chunk in part])
        whole = soxr.resample(np.concatenate([chunk.samples for chunk in given]), OTHER, RATE)
        assert abs(len(samples) - len(whole)) <= 1
        both = min(len(samples), len(whole))
        np.testing.assert_allclose(samples[:both], whole[:both], atol=1e-3)


def test_answer_has_the_rate_it_says(client, upstream) -> None:
    upstream.rate = OTHER
    asked = {"model": "tts-1", "voice": "alloy", "input": "Hello there.", "response_format": "pcm"}
    with client.audio.speech.with_streaming_response.create(**asked) as response:
        samples = decode(b"".join(response.iter_bytes()), "pcm")
    assert response.headers["content-type"] == f"audio/pcm;rate={RATE}"
    assert abs(len(samples) - len(upstream.samples) * RATE / OTHER) <= 2


def test_a_silence_at_the_end_keeps_its_length() -> None:
    silence = AudioChunk(np.zeros(OTHER, np.float32), 0.3, "", None, OTHER)
    found = heard([*CHUNKS, silence])
    assert abs(sum(len(chunk.samples) for chunk in found[3:]) - RATE) <= 1
    assert not any(chunk.samples.any() for chunk in found[3:])
