"""LiveKit's plugin for OpenAI, unmodified, before the front. Its default call is mp3 in events."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import numpy as np
import pytest
from known_key import KEY

reason = "python3 scripts/environment.py --clients installs it"
agents = pytest.importorskip("livekit.agents", reason=reason, exc_type=ImportError)
plugin = pytest.importorskip("livekit.plugins.openai", reason=reason, exc_type=ImportError)

TEXT = "Hello there."
RATE = 24_000
ONCE = agents.APIConnectOptions(max_retry=0)
DELAY_SAMPLES = {"mp3": 1105, "aac": 1024}
"""What these codecs put in front of the sound (tests/fakes/decoded.py)."""
FRAME_SAMPLES = 1152


@asynccontextmanager
async def speaking(front, key=KEY, **options):
    tts = plugin.TTS(base_url=f"{front.url}/v1", api_key=key, **options)
    try:
        yield tts
    finally:
        await tts.aclose()


async def heard(tts, options=ONCE):
    """All samples of an utterance, as 16-bit integers."""
    pieces = []
    async with tts.synthesize(TEXT, conn_options=options) as stream:
        async for audio in stream:
            assert (audio.frame.sample_rate, audio.frame.num_channels) == (RATE, 1)
            pieces.append(np.frombuffer(bytes(audio.frame.data), "<i2"))
    return np.concatenate(pieces)


@pytest.mark.parametrize("model", ["gpt-4o-mini-tts", "tts-1"])
@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "wav", "pcm"])
def test_speech_arrives_whole(front, upstream, model, format):
    async def speak():
        async with speaking(front, model=model, response_format=format) as tts:
            return await heard(tts)

    samples = len(asyncio.run(speak())) - DELAY_SAMPLES.get(format, 0)
    assert abs(samples - len(upstream.samples)) < FRAME_SAMPLES


def test_default_call_speaks(front, upstream):
    async def speak():
        async with speaking(front) as tts:
            tts.prewarm()
            return await heard(tts)

    samples = asyncio.run(speak())
    assert np.abs(samples[4800:9600]).max() == pytest.approx(0.3 * 32768, rel=0.1)
    assert len(upstream.requests) == 1


def test_leaving_cancels(front, upstream):
    upstream.gates = asyncio.Semaphore(0)

    async def leave():
        async with speaking(front) as tts, tts.synthesize(TEXT, conn_options=ONCE):
            await asyncio.to_thread(front.wait_until, lambda: upstream.active == 1)

    asyncio.run(leave())
    front.wait_until(lambda: upstream.cancelled == 1 and front.streams == 0)


def refusal(front, key=KEY, options=ONCE):
    async def speak():
        async with speaking(front, key=key) as tts:
            await heard(tts, options)

    with pytest.raises(agents.APIStatusError) as caught:
        asyncio.run(speak())
    return caught.value


def test_unknown_key(front):
    error = refusal(front, key="sk-carl")
    assert (error.status_code, error.retryable) == (401, False)


def test_unknown_voice(front, without_voice):
    error = refusal(front)
    assert (error.status_code, error.retryable) == (404, False)


def test_full_server_is_asked_again(front, crowded):
    error = refusal(front, options=agents.APIConnectOptions(max_retry=1, retry_interval=0.01))
    assert (error.status_code, error.retryable) == (503, True)
    assert len(crowded.requests) == 2


def test_key_beyond_its_limit(start_front):
    front = start_front(requests_per_minute=1)

    async def speak():
        async with speaking(front) as tts:
            await heard(tts)

    asyncio.run(speak())
    error = refusal(front)
    assert (error.status_code, error.retryable) == (429, True)
