"""LiveKit's and Pipecat's clients for Cartesia, unmodified, and a real tritonserver with the demo voice."""

from __future__ import annotations

import time

import pytest
import test_cartesia_livekit as livekit
import test_cartesia_pipecat as pipecat
from test_front_real_server import TIMEOUT_S, server, speaking, voices  # noqa: F401

from front_server import running_front

TEXT = "The train to the coast leaves from platform four. It is on time, they say."
LONG = " ".join([TEXT] * 4)
LEAST, MOST = 2.0, 12.0
"""Seconds that the text may last."""


@pytest.fixture(scope="module")
def front(server, voices):  # noqa: F811
    with running_front(grpc_url=server.grpc_url, voices_dir=voices) as front:
        yield front


def wait_for_silence(server):  # noqa: F811
    deadline = time.monotonic() + TIMEOUT_S
    while speaking(server):
        assert time.monotonic() < deadline, "the server still speaks"
        time.sleep(0.05)


def test_livekit_speaks_and_knows_when_each_word_is_heard(front):
    samples, words = livekit.speaking(front, livekit.stream)
    assert LEAST < len(samples) / 24_000 < MOST
    assert "".join(words).split() == TEXT.split()


def test_livekit_s_barge_in_ends_the_speech_on_the_server(server, front):  # noqa: F811
    async def leave(tts):
        speech = tts.stream(conn_options=livekit.once())
        speech.push_text(LONG)
        speech.end_input()
        await anext(aiter(speech))
        await speech.aclose()

    livekit.speaking(front, leave)
    wait_for_silence(server)


def test_pipecat_speaks_and_knows_when_each_word_is_heard(front):
    async def play(worker, ear, _errors):
        await worker.queue_frame(pipecat.TTSSpeakFrame(TEXT))
        await ear.until(lambda: len(ear.of(pipecat.TTSTextFrame)) == len(TEXT.split()))
        assert [frame.text for frame in ear.of(pipecat.TTSTextFrame)] == TEXT.split()
        assert LEAST < ear.samples / 24_000 < MOST

    pipecat.run(lambda: pipecat.service(front), play)


def test_pipecat_s_barge_in_ends_the_speech_on_the_server(server, front):  # noqa: F811
    async def play(worker, ear, _errors):
        await worker.queue_frame(pipecat.TTSSpeakFrame(LONG))
        await ear.until(lambda: ear.samples > 0)
        await worker.queue_frame(pipecat.InterruptionFrame())

    pipecat.run(lambda: pipecat.service(front), play)
    wait_for_silence(server)
