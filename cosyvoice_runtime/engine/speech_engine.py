"""Utterances of the callers of this process, each driven beside the networks that compute it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.engine.batches.chunk import PromptTensors
from cosyvoice_runtime.engine.direct_stages import DirectStages, SpokenTokens, Waves
from cosyvoice_runtime.engine.frames import Answer, Frame, read_tensors, write_frame
from cosyvoice_runtime.engine.messages import (
    ORDER,
    SIGN_OF_LIFE_S,
    VERDICT,
    VOICE,
    Order,
    chunk_frame,
    end_frame,
    judge_frame,
    read_order,
    take_text,
)
from cosyvoice_runtime.engine.utterance.utterance import Playback, speak
from cosyvoice_runtime.engine.utterance.verifier import Verdict
from cosyvoice_runtime.lm.text_segment import SegmentQueue
from cosyvoice_runtime.metrics import trace
from cosyvoice_runtime.process.event_loop import LoopCalls
from cosyvoice_runtime.settings.token2wav import CPU_HOP_GROWTH


class SpeechEngine:
    """Drives utterances; made in one thread, and used in the event loop that first speaks.

    Args:
        lm, waves: the networks.
        hop_growth: growth of chunks on this device, whatever an order says.
    """

    def __init__(self, lm: SpokenTokens, waves: Waves, hop_growth: float = CPU_HOP_GROWTH) -> None:
        self._lm, self._waves, self._hop_growth = lm, waves, hop_growth
        self._spoken: set[SpokenUtterance] = set()
        self._life: asyncio.TimerHandle | None = None

    def begin(self, frame: Frame, calls: LoopCalls, answer: Answer) -> SpokenUtterance:
        """Begin the utterance of an order, in the event loop of ``calls``; an invalid one raises an error."""
        order = read_order(frame.header[ORDER], lambda *segment: spoken.judged(*segment))
        order = replace(order, hop=replace(order.hop, growth=self._hop_growth))
        spoken = SpokenUtterance(self, order, calls, answer)
        self._spoken.add(spoken)
        if self._life is None:
            self._tell_of_life()
        return spoken

    def end(self, spoken: SpokenUtterance) -> None:
        """Note that an utterance has ended."""
        self._spoken.discard(spoken)

    def stages(self, order: Order, spoken: SpokenUtterance, calls: LoopCalls) -> DirectStages:
        group, timeouts = order.hop.block_tokens, (order.timeout_s, order.text_timeout_s)
        is_heard = order.utterance.streaming
        return DirectStages(self._lm, self._waves, calls, spoken.voice, group, *timeouts, is_heard)

    def _tell_of_life(self) -> None:
        for spoken in self._spoken:
            spoken.tell_of_life()
        later = asyncio.get_running_loop().call_later
        self._life = later(SIGN_OF_LIFE_S, self._tell_of_life) if self._spoken else None


class SpokenUtterance:
    """One utterance that a caller hears."""

    def __init__(self, engine: SpeechEngine, order: Order, calls: LoopCalls, answer: Answer) -> None:
        self._engine, self._order, self._answer = engine, order, answer
        self._segments = SegmentQueue()
        self._voice: asyncio.Future[PromptTensors] | None = None  # Asked for, one after another.
        self._verdict: asyncio.Future[Verdict] | None = None
        self._playback = Playback(asyncio.get_running_loop().time)
        self._stages = engine.stages(order, self, calls)
        self._task = asyncio.get_running_loop().create_task(self._speak())

    def take(self, frame: Frame) -> None:
        """Take a further message of the caller; one that makes no sense raises an error."""
        if VERDICT in frame.header:
            if self._verdict is not None and not self._verdict.done():
                self._verdict.set_result(frame.header[VERDICT])
        elif VOICE not in frame.header:
            take_text(frame, self._segments)
        elif self._voice is not None and not self._voice.done():
            tensors = read_tensors(frame)
            self._voice.set_result(PromptTensors(tensors["tokens"], tensors["mel"], tensors["speaker"]))

    def leave(self) -> None:
        """Stop speaking: the caller has gone."""
        self._task.cancel()

    def tell_of_life(self) -> None:
        self._answer(write_frame({}), False)

    async def voice(self, key: str) -> PromptTensors:
        """Ask the caller for the tensors of a voice."""
        self._voice = asyncio.get_running_loop().create_future()
        self._answer(write_frame({VOICE: key}), False)
        async with asyncio.timeout(self._order.timeout_s):
            return await self._voice

    async def judged(self, samples: Floats, rate: int, text: str) -> Verdict:
        """Ask the caller what its verifier hears, which may take any time."""
        self._verdict = asyncio.get_running_loop().create_future()
        self._answer(judge_frame(samples, rate, text), False)
        return await self._verdict

    async def _speak(self) -> None:
        try:
            with trace.utterance("engine", self._order.trace):
                await self._send_chunks()
        except Exception as error:
            self._answer(end_frame(error), True)
        else:
            self._answer(end_frame(), True)
        finally:
            self._engine.end(self)

    async def _send_chunks(self) -> None:
        order = self._order
        cushion_s = lambda: self._playback.cushion_s  # noqa: E731
        how = order.hop, order.sample_rate, cushion_s, order.checks
        chunks = speak(order.utterance, self._segments, self._stages, *how)
        async with aclosing(chunks):
            async for chunk in chunks:
                self._answer(chunk_frame(chunk), False)
                self._playback.sent(chunk.seconds)
                trace.note("the engine has sent audio")
                if chunk.finish_reason is not None:
                    trace.tell(finish_reason=chunk.finish_reason.value)
