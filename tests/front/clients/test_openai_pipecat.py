"""Pipecat's service for OpenAI's speech, unmodified, in a pipeline before the front."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from known_key import KEY

from cosyvoice_front import errors as front_errors
from raw_http import begin

reason = "python3 scripts/environment.py --clients installs it"
frames = pytest.importorskip("pipecat.frames.frames", reason=reason, exc_type=ImportError)
service = pytest.importorskip("pipecat.services.openai.tts", reason=reason, exc_type=ImportError)
testing = pytest.importorskip("pipecat.tests.utils", reason=reason, exc_type=ImportError)

TEXT = "Hello there."
TIMEOUT_S = 60.0


def speech_service(front, key=KEY):
    return service.OpenAITTSService(api_key=key, base_url=f"{front.url}/v1", sample_rate=24_000)


def run(front, *sent, key=KEY):
    """Frames that come down and up a pipeline in which the service stands alone."""

    async def run_pipeline():
        async with asyncio.timeout(TIMEOUT_S):
            return await testing.run_test(
                speech_service(front, key), frames_to_send=sent, start_timeout=TIMEOUT_S
            )

    return asyncio.run(run_pipeline())


def audio(found):
    pieces = [frame.audio for frame in found if isinstance(frame, frames.TTSAudioRawFrame)]
    return np.frombuffer(b"".join(pieces), "<i2")


def errors(found):
    return [frame.error for frame in found if isinstance(frame, frames.ErrorFrame)]


def test_speech_arrives_whole(front, upstream):
    down, up = run(front, frames.TTSSpeakFrame(TEXT))
    samples = audio(down)
    assert len(samples) >= len(upstream.samples)  # pipecat may add silence behind it
    spoken = samples[: len(upstream.samples)] / 32768
    assert np.abs(spoken - upstream.samples).max() <= 1 / 32768
    assert not [frame for frame in up if isinstance(frame, frames.ErrorFrame)]


def test_interruption_cancels(front, upstream):
    upstream.gates = asyncio.Semaphore(0)

    async def interrupt():
        from pipecat.pipeline.pipeline import Pipeline
        from pipecat.pipeline.worker import PipelineWorker
        from pipecat.workers.runner import WorkerRunner

        worker = PipelineWorker(Pipeline([speech_service(front)]), cancel_on_idle_timeout=False)
        runner = WorkerRunner()
        await runner.add_workers(worker)
        running = asyncio.create_task(runner.run())
        await worker.queue_frame(frames.TTSSpeakFrame(TEXT))
        await asyncio.to_thread(front.wait_until, lambda: upstream.active == 1)
        await worker.queue_frame(frames.InterruptionFrame())
        await asyncio.to_thread(front.wait_until, lambda: upstream.cancelled == 1)
        await worker.queue_frame(frames.EndFrame())
        await running

    asyncio.run(asyncio.wait_for(interrupt(), TIMEOUT_S))
    assert (upstream.active, front.streams) == (0, 0)


def first_error(front, **options):
    """What a user of the pipeline gets to know."""
    return next(iter(errors(run(front, frames.TTSSpeakFrame(TEXT), **options)[1])))


def test_unknown_key(front):
    assert "Error code: 401" in first_error(front, key="sk-carl")


def test_unknown_voice(front, without_voice):
    assert "Error code: 404 - voice: 'alloy'" in first_error(front)


def test_full_server_is_asked_again(front, crowded):
    assert "Error code: 503" in first_error(front)
    assert len(crowded.requests) == 3


def test_key_beyond_its_limit(start_front, upstream, monkeypatch):
    monkeypatch.setattr(front_errors, "RETRY_AFTER_MS", 1)
    front = start_front(streams_per_key=1)
    upstream.gates = asyncio.Semaphore(0)
    with begin(front) as other:
        assert other.recv(4096)
        assert "Error code: 429" in first_error(front)
