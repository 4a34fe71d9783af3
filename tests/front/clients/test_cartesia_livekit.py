"""LiveKit's plugin for Cartesia, unmodified, against the front's websocket."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import numpy as np
import pytest
from known_key import KEY

from fake_text import CHARACTER_S, samples_of

pytest.importorskip("aiohttp")
REASON = "python3 scripts/environment.py --clients installs it"
agents = pytest.importorskip("livekit.agents", reason=REASON, exc_type=ImportError)
pytest.importorskip("livekit.plugins.cartesia", reason=REASON, exc_type=ImportError)

from drills import livekit_plugin  # noqa: E402
from drills.livekit_plugin import once  # noqa: E402

TEXT = "The train to the coast leaves from platform four. It is on time, they say."


speaking = partial(livekit_plugin.speaking, api_key=KEY)


async def stream(tts, text=TEXT, retries=0):
    return await livekit_plugin.stream(tts, text, once(retries))


@pytest.mark.parametrize("words_by", ["attention", ""])
def test_agent_speaks_and_knows_when_each_word_is_heard(front, upstream, words_by):
    upstream.words_by = words_by
    samples, words = speaking(front, stream)
    assert abs(len(samples) - samples_of(TEXT + " ")) <= samples_of(" ")
    assert "".join(words).split() == TEXT.split()
    times = [word.start_time for word in words]
    assert times == sorted(times)
    assert 0 < times[-1] < len(samples) / 24_000
    if words_by:
        begins = [match.start() * CHARACTER_S for match in re.finditer(r"\S+", TEXT)]
        assert times == pytest.approx(begins, abs=0.001)


def test_second_speech_takes_the_same_socket(front, upstream):
    async def twice(tts):
        await stream(tts)
        await stream(tts, "Again, please.")

    speaking(front, twice)
    first, second = upstream.request_ids
    assert first.rpartition("-")[0] == second.rpartition("-")[0]


def test_barge_in_cancels(front, upstream):
    upstream.gates = asyncio.Semaphore(0)

    async def leave(tts):
        speech = tts.stream(conn_options=once())
        speech.push_text(TEXT)
        speech.end_input()
        await anext(aiter(speech))
        await speech.aclose()

    speaking(front, leave)
    front.wait_until(lambda: upstream.cancelled == 1 and upstream.active == 0 and front.streams == 0)


def test_socket_that_was_closed_while_idle_is_replaced(start_front):
    front = start_front(idle_socket_timeout_s=0.1)

    async def idle(tts):
        await stream(tts)
        before = await asyncio.to_thread(open_sockets, front)
        await asyncio.to_thread(front.wait_until, lambda: sockets(front) < before)
        return await stream(tts, retries=3)

    samples, _ = speaking(front, idle)
    assert len(samples) >= samples_of(TEXT)


def open_sockets(front):
    return front.do(lambda: sockets(front))


def sockets(front):
    """Tasks of the front; each open websocket has some."""
    return len(asyncio.all_tasks())


def test_whole_text_by_http(front):
    async def synthesize(tts):
        frame = await tts.synthesize("Hello there.", conn_options=once()).collect()
        return np.frombuffer(frame.data, np.int16)

    samples = speaking(front, synthesize)
    assert 0 <= len(samples) - len(front.upstream.samples) <= 240  # the plugin ends with 10 ms of silence


async def synthesize(tts):
    await tts.synthesize("Hello there.", conn_options=once()).collect()


@pytest.mark.parametrize("use", [stream, synthesize])
def test_wrong_key_is_a_status(front, use):
    with pytest.raises(agents.APIStatusError) as caught:
        speaking(front, use, api_key="sk-wrong")
    assert caught.value.status_code == 401
    assert not caught.value.retryable


def test_unknown_voice_is_an_error(front):
    with pytest.raises(agents.APIError, match="does not exist"):
        speaking(front, stream, voice="0" * 64)


def test_unknown_voice_is_a_status_by_http(front):
    with pytest.raises(agents.APIStatusError) as caught:
        speaking(front, synthesize, voice="0" * 64)
    assert caught.value.status_code == 404
