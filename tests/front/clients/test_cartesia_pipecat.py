"""Pipecat's services for Cartesia, unmodified, against the front."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from known_key import KEY

from fake_text import samples_of

REASON = "python3 scripts/environment.py --clients installs it"
loguru = pytest.importorskip("loguru", reason=REASON, exc_type=ImportError)
pytest.importorskip("pipecat.services.cartesia.tts", reason=REASON, exc_type=ImportError)

from pipecat.frames.frames import (  # noqa: E402
    EndFrame,
    ErrorFrame,
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline  # noqa: E402
from pipecat.pipeline.worker import PipelineWorker  # noqa: E402
from pipecat.processors.frame_processor import FrameProcessor  # noqa: E402
from pipecat.services.cartesia.tts import CartesiaHttpTTSService, CartesiaTTSService  # noqa: E402
from pipecat.workers.runner import WorkerRunner  # noqa: E402

TEXT = "The train leaves from platform four."
TIMEOUT_S = 30.0


class Ear(FrameProcessor):
    """Keeps the frames that pass, in both directions."""

    def __init__(self):
        super().__init__(enable_direct_mode=True)
        self.frames = []
        self._new = asyncio.Event()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        self._new.set()
        await self.push_frame(frame, direction)

    def of(self, kind):
        return [frame for frame in self.frames if isinstance(frame, kind)]

    async def until(self, holds):
        async with asyncio.timeout(TIMEOUT_S):
            while not holds():
                self._new.clear()
                await self._new.wait()

    @property
    def samples(self):
        return sum(len(np.frombuffer(frame.audio, np.int16)) for frame in self.of(TTSAudioRawFrame))


def service(front, key=KEY, voice="default"):
    return CartesiaTTSService(
        api_key=key,
        url=f"ws://127.0.0.1:{front.port}/tts/websocket",
        sample_rate=24_000,
        settings=CartesiaTTSService.Settings(voice=voice),
    )


def run(make_service, play):
    """Run a pipeline around the service while ``play(worker, ear, errors)`` uses it."""
    loguru.logger.disable("pipecat")

    async def main():
        ear, errors = Ear(), Ear()
        worker = PipelineWorker(Pipeline([errors, make_service(), ear]), cancel_on_idle_timeout=False)
        started = asyncio.Event()

        @worker.event_handler("on_pipeline_started")
        async def _started(_worker, _frame):
            started.set()

        async def use():
            await asyncio.wait_for(started.wait(), TIMEOUT_S)
            try:
                await play(worker, ear, errors)
            finally:
                await worker.queue_frame(EndFrame())

        runner = WorkerRunner()
        await runner.add_workers(worker)
        await asyncio.gather(runner.run(), use())

    asyncio.run(main())


def test_agent_speaks_and_knows_when_each_word_is_heard(front, upstream):
    async def play(worker, ear, _errors):
        await worker.queue_frame(TTSSpeakFrame(TEXT))
        await ear.until(lambda: len(ear.of(TTSTextFrame)) == len(TEXT.split()))
        assert [frame.text for frame in ear.of(TTSTextFrame)] == TEXT.split()
        times = [frame.pts for frame in ear.of(TTSTextFrame)]
        assert times == sorted(times)
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
