"""Pipecat's service for Cartesia, unmodified, in a pipeline before a front."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import loguru
import numpy as np
from pipecat.frames.frames import EndFrame, Frame, TTSAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.workers.runner import WorkerRunner

TIMEOUT_S = 60.0
Kind = TypeVar("Kind", bound=Frame)


class Listening(Protocol):
    """A front, whoever runs it."""

    @property
    def port(self) -> int: ...


class Ear(FrameProcessor):
    """Keeps the frames that pass, in both directions."""

    def __init__(self) -> None:
        super().__init__(enable_direct_mode=True)
        self.frames: list[Frame] = []
        self._new = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: Any) -> None:
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        self._new.set()
        await self.push_frame(frame, direction)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The frames of a kind that have passed."""
        return [frame for frame in self.frames if isinstance(frame, kind)]

    async def until(self, holds: Callable[[], object]) -> None:
        """Return when it holds, which only a frame can bring about."""
        async with asyncio.timeout(TIMEOUT_S):
            while not holds():
                self._new.clear()
                await self._new.wait()

    @property
    def samples(self) -> int:
        """Samples that have passed."""
        return sum(len(np.frombuffer(frame.audio, np.int16)) for frame in self.of(TTSAudioRawFrame))


Play = Callable[[PipelineWorker, Ear, Ear], Awaitable[None]]


def service(front: Listening, key: str, voice: str = "default") -> CartesiaTTSService:
    """The service, at the front's socket."""
    return CartesiaTTSService(
        api_key=key,
        url=f"ws://127.0.0.1:{front.port}/tts/websocket",
        sample_rate=24_000,
        settings=CartesiaTTSService.Settings(voice=voice),
    )


def run(make_service: Callable[[], Any], play: Play) -> None:
    """Run a pipeline around the service while ``play(worker, ear, errors)`` uses it."""
    loguru.logger.disable("pipecat")

    async def main() -> None:
        ear, errors = Ear(), Ear()
        worker = PipelineWorker(Pipeline([errors, make_service(), ear]), cancel_on_idle_timeout=False)
        started = asyncio.Event()

        async def tell(_worker: Any, _frame: Any) -> None:
            started.set()

        worker.event_handler("on_pipeline_started")(tell)

        async def use() -> None:
            await asyncio.wait_for(started.wait(), TIMEOUT_S)
            try:
                await play(worker, ear, errors)
            finally:
                await worker.queue_frame(EndFrame())

        runner = WorkerRunner()
        await runner.add_workers(worker)
        await asyncio.gather(runner.run(), use())

    asyncio.run(main())
