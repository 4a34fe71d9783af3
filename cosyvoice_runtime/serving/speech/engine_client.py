"""Calls to the engine, one for each utterance, from the process that has the requests."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_runtime.arrays import Floats, Ids
from cosyvoice_runtime.engine.frames import Frame, write_frame
from cosyvoice_runtime.engine.host_client import HostClient, HostConnection, request_frame
from cosyvoice_runtime.engine.messages import (
    DONE,
    END,
    JUDGE,
    PAUSE,
    TEXT,
    VOICE,
    Order,
    begin_frame,
    order_frame,
    read_chunk,
    read_error,
    silence_of,
    verdict_frame,
    voice_frame,
)
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.errors import StageError, StageLostError
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.spoken import within
from cosyvoice_runtime.lm.text_segment import MOST_TEXT, CheckedText, Sound
from cosyvoice_runtime.serving.triton.schema import AUDIO_TOKENIZER, SPEAKER_EMBEDDING
from cosyvoice_runtime.serving.triton.tensor_spec import ModelSchema, Tensors
from cosyvoice_runtime.settings.repository import HOST
from cosyvoice_runtime.voice.voice import Voice

LOOK_S = 0.1
"""The time between two checks whether the engine is back, which takes seconds."""


class EngineClient:
    """Calls the engine; made and used in one event loop.

    Args:
        socket: socket of the engine.
        timeout_s: longest time without an answer, and longest wait for a restart.
    """

    def __init__(self, socket: Path, timeout_s: float) -> None:
        self._host = HostClient(socket)
        self._timeout_s = timeout_s

    def require(self) -> None:
        """Raise a StageLostError if the engine is down."""
        try:
            self._host.require()
        except OSError:
            raise StageLostError(HOST) from None

    async def back(self) -> None:
        """Wait until the engine is up; a StageLostError tells that it did not come up in time."""
        self._host.close()
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.sleep(LOOK_S)  # The engine that ended may not have closed its last socket yet.
                await self.loaded()
        except TimeoutError:
            raise StageLostError(HOST) from None

    async def loaded(self) -> None:
        """Wait without a limit until the engine is up."""
        while True:
            try:
                return self.require()
            except StageLostError:
                await asyncio.sleep(LOOK_S)

    def call(
        self, order: Order, voices: Mapping[str, Voice], spoken: Sequence[Sequence[int]] = ()
    ) -> EngineCall:
        """A call for one utterance, which begins when its chunks are read.

        Args:
            voices: of its segments by their keys, in the form that the flow takes; more may come.
            spoken: what has been spoken of its segments.
        """
        return EngineCall(self._host, order, voices, spoken, self._timeout_s)

    async def speech_tokens(self, samples: Floats) -> Ids:
        """Speech tokens, int32 ``[m]``, of 16 kHz samples, float32 ``[n]``."""
        outputs = await self._infer(AUDIO_TOKENIZER, samples)
        return outputs["prompt_speech_tokens"].reshape(-1).astype(np.int32)

    async def speaker_embedding(self, samples: Floats) -> Floats:
        """The speaker embedding, float32 ``[D]``, of 16 kHz samples, float32 ``[n]``."""
        outputs = await self._infer(SPEAKER_EMBEDDING, samples)
        return outputs["prompt_spk_embedding"].reshape(-1).astype(np.float32)

    async def close(self) -> None:
        self._host.close()

    async def _infer(self, schema: ModelSchema, samples: Floats) -> Tensors:
        inputs = schema.encode(reference_wav=samples, reference_wav_len=len(samples))
        call = self._host.call(schema.name)
        try:
            async with asyncio.timeout(self._timeout_s):
                await call.begin(request_frame(schema.name, "", inputs))
                outputs = await call.next()
        except TimeoutError:
            raise silence_of(schema.name, self._timeout_s) from None
        except OSError:
            raise StageLostError(HOST) from None
        finally:
            call.leave()
        if outputs is None:
            raise StageError(f"{schema.name}: no answer", "INTERNAL")
        return outputs


class EngineCall:
    """One utterance of the engine; a `SegmentSink` that takes its text."""

    def __init__(
        self,
        host: HostClient,
        order: Order,
        voices: Mapping[str, Voice],
        spoken: Sequence[Sequence[int]],
        timeout_s: float,
    ) -> None:
        self._host = host
        self._order = order
        self._voices = voices
        self._spoken = iter(spoken)
        self._timeout_s = timeout_s
        self._unsent = [order_frame(order)]
        self._connection: HostConnection | None = None

    def begin(
        self,
        prompt: Prompt,
        in_pieces: bool = False,
        sound: Sound | None = None,
        checked: CheckedText | None = None,
    ) -> None:
        text = MOST_TEXT if in_pieces else len(prompt.text)
        limits = TokenLimits.of(self._order.utterance.sampling, text)
        spoken = within(limits, next(self._spoken, ()))
        self._send(begin_frame(dataclasses.replace(prompt, spoken=spoken), in_pieces, sound, checked))

    def pause(self, seconds: float) -> None:
        self._send(write_frame({PAUSE: seconds}))

    def add(self, ids: Sequence[int]) -> None:
        self._send(write_frame({TEXT: [*ids]}))

    def end(self) -> None:
        self._send(write_frame({END: True}))

    def done(self) -> None:
        self._send(write_frame({DONE: True}))

    async def chunks(self) -> AsyncGenerator[AudioChunk, None]:
        """The chunks as they arrive, without ``spoken_characters``. Closing this early cancels the utterance.

        Raises:
            StageLostError: the engine is down, or ended before the utterance did.
            StageError: the utterance failed.
            StageSilentError: the engine, or a network in it, did not answer in time.
            Exception: the verifier raised it.
        """
        complete = False
        try:
            await self._connect()
            while not (frame := await self._next()).header.get("last"):
                if VOICE in frame.header:
                    self._send(voice_frame(self._voices[frame.header[VOICE]]))
                elif JUDGE in frame.header:
                    self._send(await verdict_frame(frame, self._order.checks))
                elif "segment" in frame.header:
                    yield read_chunk(frame, self._order.sample_rate)
            self._raise_error(frame.header)
            complete = True
        finally:
            self._leave(complete)

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                self._connection = await self._host.connect()
        except OSError:
            raise StageLostError(HOST) from None
        self._connection.send(b"".join(self._unsent))
        self._unsent.clear()

    async def _next(self) -> Frame:
        assert self._connection is not None
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._connection.next()
        except TimeoutError:
            raise silence_of(HOST, self._timeout_s) from None
        except OSError:
            raise StageLostError(HOST) from None

    def _raise_error(self, said: Mapping[str, Any]) -> None:
        error = read_error(said)
        if error is not None:
            raise error

    def _leave(self, complete: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and complete:
            self._host.keep(connection)
        elif connection is not None:
            connection.hang_up()

    def _send(self, frame: bytes) -> None:
        if self._connection is None:
            self._unsent.append(frame)
        else:
            self._connection.send(frame)
