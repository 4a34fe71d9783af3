"""Pipecat's services for Cartesia, unmodified, against the front."""

from __future__ import annotations

import asyncio
import re

import pytest
from known_key import KEY

from fake_text import CHARACTER_S, samples_of

REASON = "python3 scripts/environment.py --clients installs it"
pytest.importorskip("loguru", reason=REASON, exc_type=ImportError)
pytest.importorskip("pipecat.services.cartesia.tts", reason=REASON, exc_type=ImportError)

from pipecat.frames.frames import (  # noqa: E402
    ErrorFrame,
    InterruptionFrame,
    TTSSpeakFrame,
    TTSTextFrame,
)
from pipecat.services.cartesia.tts import CartesiaHttpTTSService  # noqa: E402

from drills import pipecat_plugin  # noqa: E402
from drills.pipecat_plugin import run  # noqa: E402

TEXT = "The train leaves from platform four."


def service(front, key=KEY, voice="default"):
    return pipecat_plugin.service(front, key, voice)


@pytest.mark.parametrize("words_by", ["attention", ""])
def test_agent_speaks_and_knows_when_each_word_is_heard(front, upstream, words_by):
    upstream.words_by = words_by

    async def play(worker, ear, _errors):
        await worker.queue_frame(TTSSpeakFrame(TEXT))
        await ear.until(lambda: len(ear.of(TTSTextFrame)) == len(TEXT.split()))
        assert [frame.text for frame in ear.of(TTSTextFrame)] == TEXT.split()
        times = [frame.pts for frame in ear.of(TTSTextFrame)]
        assert times == sorted(times)
        if words_by:
            begins = [match.start() * CHARACTER_S for match in re.finditer(r"\S+", TEXT)]
            apart_s = [(time - times[0]) / 1e9 for time in times]
            assert apart_s == pytest.approx(begins, abs=0.001)
        assert ear.samples == samples_of(TEXT)

    run(lambda: service(front), play)
    assert upstream.texts[0].pushed[0] == TEXT


def test_contexts_follow_each_other_on_one_socket(front, upstream):
    async def play(worker, ear, _errors):
        for count in (1, 2):
            await worker.queue_frame(TTSSpeakFrame(TEXT))
            await ear.until(lambda count=count: ear.samples == count * samples_of(TEXT))

    run(lambda: service(front), play)
    first, second = upstream.request_ids
    assert first.rpartition("-")[0] == second.rpartition("-")[0]


def test_barge_in_cancels(front, upstream):
    upstream.gates = asyncio.Semaphore(0)

    async def play(worker, ear, _errors):
        await worker.queue_frame(TTSSpeakFrame("A first clause, and a second one."))
        await ear.until(lambda: ear.samples > 0)
        await worker.queue_frame(InterruptionFrame())
        await asyncio.to_thread(
            front.wait_until, lambda: upstream.cancelled == 1 and upstream.active == 0 and front.streams == 0
        )
        upstream.gates = None
        heard = ear.samples
        await worker.queue_frame(TTSSpeakFrame(TEXT))
        await ear.until(lambda: ear.samples == heard + samples_of(TEXT))

    run(lambda: service(front), play)


def test_socket_that_was_closed_while_idle_is_replaced(start_front, upstream):
    front = start_front(idle_socket_timeout_s=0.1)

    async def play(worker, ear, _errors):
        await worker.queue_frame(TTSSpeakFrame(TEXT))
        await ear.until(lambda: ear.samples == samples_of(TEXT))
        await asyncio.to_thread(front.wait_until, lambda: front.app.state.front.limits.streams == 0)
        await worker.queue_frame(TTSSpeakFrame(TEXT))
        await ear.until(lambda: ear.samples == 2 * samples_of(TEXT))

    run(lambda: service(front), play)


def test_unknown_voice_is_an_error_frame(front):
    async def play(worker, _ear, errors):
        await worker.queue_frame(TTSSpeakFrame(TEXT))
        await errors.until(lambda: errors.of(ErrorFrame))
        assert "does not exist" in errors.of(ErrorFrame)[0].error

    run(lambda: service(front, voice="0" * 64), play)


def test_wrong_key_is_an_error_frame(front):

    async def play(_worker, _ear, errors):
        await errors.until(lambda: errors.of(ErrorFrame))
        assert "401" in errors.of(ErrorFrame)[0].error

    run(lambda: service(front, key="sk-wrong"), play)


def http_service(front, voice="default"):
    return CartesiaHttpTTSService(
        api_key=KEY,
        base_url=front.url,
        sample_rate=24_000,
        settings=CartesiaHttpTTSService.Settings(voice=voice),
    )


def test_whole_text_by_http(front, upstream):
    async def play(worker, ear, _errors):
        await worker.queue_frame(TTSSpeakFrame(TEXT))
        await ear.until(lambda: ear.samples == len(upstream.samples))

    run(lambda: http_service(front), play)


def test_refusal_by_http_is_an_error_frame(front):
    async def play(worker, _ear, errors):
        await worker.queue_frame(TTSSpeakFrame(TEXT))
        await errors.until(lambda: errors.of(ErrorFrame))
        assert "status 404" in errors.of(ErrorFrame)[0].error

    run(lambda: http_service(front, voice="0" * 64), play)
