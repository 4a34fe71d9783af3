"""Two models in a process of their own, whose requests a test answers, and what reads their answers."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.errors import (
    NotFoundError,
    StageError,
)
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.pipeline.stages import TokenGroup, WaveSettings
from cosyvoice_runtime.serving.host.host_calls import HostCalls
from cosyvoice_runtime.serving.host.model_host import ModelHost
from cosyvoice_runtime.serving.triton.request import Inputs, Reply, answer
from cosyvoice_runtime.serving.triton.schema import TENSORRT_LLM, TOKEN2WAV
from cosyvoice_runtime.serving.triton.stage_calls import Beside, StageCalls, StageWay
from cosyvoice_runtime.serving.triton.stage_client import StageClient
from cosyvoice_runtime.voice.voice import Voice

PATIENCE_S = 30.0
STAGES = (TENSORRT_LLM.name, TOKEN2WAV.name)
VOCABULARY = MergedVocabulary(100, 6564)
LM = {"input_ids": [1, 2], "input_lengths": 2, "request_output_len": 5}
WAVE = {"utterance_id": "id", "tokens_of": "id", "position": 0, "last": False, "voice_key": "v"}
UNKNOWN_VOICE = NotFoundError("voice_key", "v", "send it")
PROMPT = Prompt([5])
SAMPLING = SamplingOptions(max_tokens=60)
PROMPT_TENSORS = ("prompt_speech_tokens", "prompt_speech_feat", "prompt_spk_embedding")
VOICE = Voice(
    "0" * 64, "x", np.arange(3, dtype=np.int32), np.zeros((6, 80), np.float32), np.ones(192, np.float32), "c"
)
SETTINGS = WaveSettings(VOICE, 7, 1.5, continues=True)


class Asked:
    """A request to one of the models, which a test answers.

    Attributes:
        names: of its inputs.
    """

    def __init__(self, model: str, request: Any) -> None:
        self.model, self.id = model, request.request_id()
        self.inputs = Inputs(request)
        self.names = {tensor.name() for tensor in request.inputs()}
        self._request = request
        self._reply = Reply(request, model) if model == "tensorrt_llm" else None

    @property
    def cancelled(self) -> bool:
        return self._request.is_cancelled()

    def say(self, *tokens: int, reason: str = "") -> None:
        """The speech LM's next tokens."""
        ids = np.array([[[VOCABULARY.speech_offset + token for token in tokens]]], np.int32)
        self._reply.send(output_ids=ids, finish_reason=np.array([[reason.encode()]], np.object_))

    def finish(self, error: Exception | None = None) -> None:
        self._reply.finish(error)

    def make(self, *samples: float) -> None:
        """The waveform of token2wav."""
        answer(self._request, self.model, {"waveform": np.array([samples], np.float32)})

    def fail(self, error: Exception) -> None:
        answer(self._request, self.model, error)


class TwoModels:
    """A process with a speech LM and token2wav, or with one of them, whose answers a test gives.

    Attributes:
        stops: streams that the speech LM was told to end, which it does at once.
        cancels: utterances that token2wav was told to forget.
    """

    def __init__(self, path: Path, names: Sequence[str] = STAGES) -> None:
        self.path = path
        self.stops: list[str] = []
        self.cancels: list[str] = []
        self._running: dict[str, Asked] = {}
        self._asked: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self.host = ModelHost(path, {name: HandedOn(partial(self._take, name)) for name in names})

    async def next(self) -> Asked:
        """The next request, in the order they came."""
        return await asyncio.to_thread(self._asked.get, timeout=PATIENCE_S)

    @property
    def quiet(self) -> bool:
        """Whether there is no other one."""
        return self._asked.empty()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for stops and cancels."""

        def wait() -> None:
            with self._changed:
                assert self._changed.wait_for(holds, PATIENCE_S)

        await asyncio.to_thread(wait)

    def hang_up(self) -> None:
        """As a process does that ends."""
        self.host._loop.run(self._hang_up())

    async def _hang_up(self) -> None:
        for caller in list(self.host._callers):
            caller.hang_up()

    def _take(self, model: str, request: Any) -> None:
        asked = Asked(model, request)
        with self._changed:
            if "stop" in asked.names:
                self.stops.append(asked.id)
                if (running := self._running.pop(asked.id, None)) is not None:
                    running.say(reason="cancelled")
                    running.finish()
                asked.finish()
            elif "cancel" in asked.names:
                self.cancels.append(asked.inputs.required_text("utterance_id"))
                asked.make()
            else:
                if model == "tensorrt_llm" and "more_text" not in asked.names:
                    self._running[asked.id] = asked
                self._asked.put(asked)
            self._changed.notify_all()


class HandedOn:
    """A model that hands every request on."""

    def __init__(self, take: Callable[[Any], None]) -> None:
        self._take = take

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._take(request)


def both(path: Path) -> dict[str, StageWay]:
    return dict.fromkeys(STAGES, HostCalls(path, "token2wav"))


@asynccontextmanager
async def opened(
    host: TwoModels, ways: Callable[[Path], dict[str, StageWay]] = both
) -> AsyncIterator[StageCalls]:
    """Calls that leave neither a task nor a connection behind."""
    async with asyncio.timeout(PATIENCE_S):
        calls = StageCalls(ways(host.path), PATIENCE_S, lambda _: os.getpid())
        try:
            yield calls
        finally:
            await calls.close()
        while asyncio.all_tasks() - {asyncio.current_task()} or host.host._callers:
            await asyncio.sleep(0.005)


def run(host: TwoModels, use: Callable[[StageCalls], Awaitable[Any]]) -> Any:
    async def inner() -> Any:
        async with opened(host) as calls:
            return await use(calls)

    return asyncio.run(inner())


class Events(list):
    """What a stream brings and what the request beside it brings, as they come.

    Attributes:
        reading: until the stream ends.
    """

    def __init__(self, calls: StageCalls, **options: Any) -> None:
        super().__init__()
        beside = Beside(TOKEN2WAV, WAVE, self._told)
        self.reading = asyncio.ensure_future(
            self._read(calls.stream(TENSORRT_LLM, LM, "id", beside=beside, **options))
        )

    def _told(self, outcome: Any) -> None:
        self.append(outcome if isinstance(outcome, StageError) else ("wave", outcome["waveform"].tolist()))

    async def _read(self, stream: AsyncIterator[Any]) -> None:
        async for outputs in stream:
            self.append(outputs["output_ids"].item() - VOCABULARY.speech_offset)


async def asked(host: TwoModels) -> tuple[Asked, Asked]:
    """Both requests of a call."""
    lm, wave = await host.next(), await host.next()
    assert [(each.model, each.id) for each in (lm, wave)] == [("tensorrt_llm", "id"), ("token2wav", "id")]
    return lm, wave


ORDERS = ["w12.", "1w2.", "12w.", "12.w"]
"""In which the models answer: two tokens, their end, and the waveform."""


def answer_in(order: str, lm: Asked, wave: Callable[[], None]) -> None:
    steps = {"w": wave, ".": lm.finish}
    for step in order:
        steps.get(step, lambda step=step: lm.say(int(step)))()


def in_order(order: str, wave: Any) -> list[Any]:
    return [wave if step == "w" else int(step) for step in order if step != "."]


def alone(path: Path) -> dict[str, StageWay]:
    """As through the server, where each has a process."""
    way = HostCalls(path, "")
    way.process = None
    return dict.fromkeys(STAGES, way)


def apart(path: Path) -> dict[str, StageWay]:
    return {name: HostCalls(path, name) for name in STAGES}


class ReadGroups:
    """Reads a stream of the speech LM in a task, as whoever speaks does.

    Attributes:
        groups: that have come.
    """

    def __init__(self, stream: AsyncIterator[TokenGroup]) -> None:
        self.groups: list[TokenGroup] = []
        self.reading = asyncio.create_task(self._read(stream))
        self._news = asyncio.Event()

    @property
    def tokens(self) -> list[int]:
        return [token for group in self.groups for token in group.tokens]

    async def until(self, tokens: int) -> None:
        while len(self.tokens) < tokens:
            self._news.clear()
            await self._news.wait()

    async def leave(self) -> None:
        self.reading.cancel()
        await asyncio.wait([self.reading])

    async def _read(self, stream: Any) -> None:
        try:
            async for group in stream:
                self.groups.append(group)
                self._news.set()
        finally:
            await stream.aclose()


def speak(
    host: TwoModels,
    use: Callable[[StageClient], Awaitable[Any]],
    ways: Callable[[Path], dict[str, StageWay]] = both,
) -> Any:
    """What ``use(stages)`` gives; the stages are closed and keep nothing then."""

    async def inner() -> Any:
        async with opened(host, ways) as calls:
            stages = StageClient(calls, VOCABULARY, group_tokens=25)
            try:
                return await use(stages)
            finally:
                async with asyncio.timeout(PATIENCE_S):
                    await stages.close()
                assert (stages._ahead, stages._waves, stages._cleanups) == ({}, {}, set())

    return asyncio.run(inner())


def begin(stages: StageClient, first_tokens: int = 3, ahead: WaveSettings | None = SETTINGS) -> ReadGroups:
    return ReadGroups(stages.generate(PROMPT, SAMPLING, "id", first_tokens, ahead))


def first_wave(stages: StageClient, *tokens: int, last: bool = False) -> asyncio.Task[Any]:
    return asyncio.create_task(stages.wave("id", tokens, 0, last, SETTINGS, 0.0))


async def awaited(host: TwoModels, stages: StageClient) -> tuple[ReadGroups, asyncio.Task[Any], Asked, Asked]:
    """A stream that has brought its first tokens, and the wave that is asked for then; both requests."""
    read = begin(stages)
    lm, wave = await asked(host)
    lm.say(1, 2, 3)
    await read.until(3)
    waving = first_wave(stages, 1, 2, 3)
    await asyncio.sleep(0)
    return read, waving, lm, wave


async def end(lm: Asked, read: ReadGroups) -> None:
    """Of the speech LM's stream."""
    lm.say(9, reason="stop")
    lm.finish()
    await read.reading
    assert read.groups[-1] == TokenGroup([9], FinishReason.STOP)
