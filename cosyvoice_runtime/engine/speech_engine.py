"""Utterances of the callers of this process, each driven beside the networks that compute it.

The first chunk lasts a third of a second at most. On a machine that needs longer for the second one, speech
would stop right after it began. The first chunk is therefore sent a little later, while the second is being
computed, and the same audio is heard without a gap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace

from cosyvoice_runtime.engine.batches.chunk import PromptTensors
from cosyvoice_runtime.engine.direct_stages import DirectStages, SpokenTokens, Waves
from cosyvoice_runtime.engine.frames import Answer, Frame, read_tensors, write_frame
from cosyvoice_runtime.engine.messages import (
    ORDER,
    SIGN_OF_LIFE_S,
    VOICE,
    Order,
    chunk_frame,
    end_frame,
    read_order,
    take_text,
)
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.engine.utterance.utterance import UNHEARD_S, Playback, speak
from cosyvoice_runtime.lm.text_segment import SegmentQueue
from cosyvoice_runtime.metrics import trace
from cosyvoice_runtime.process.event_loop import LoopCalls
from cosyvoice_runtime.settings.token2wav import CPU_HOP_GROWTH

LONGEST_S = 2.0
"""Most seconds for which a first chunk waits for the second; a slower machine is heard with a gap."""
MEAN_SHARE, DEVIATION_SHARE = 1 / 8, 1 / 4
"""The shares of the latest utterance in what is expected, as in TCP's estimate of a round trip (RFC 6298)."""
DEVIATIONS = 1.0
"""Mean deviations above the mean. RFC 6298 takes four: a packet sent twice costs more than a pause of
a few milliseconds, which some listeners may hear."""


class SecondChunk:
    """The time from an utterance's first chunk to its second, learned from the latest utterances."""

    def __init__(self) -> None:
        self._mean = self._deviation = 0.0

    @property
    def expected_s(self) -> float:
        """Seconds that are seldom exceeded; 0 before anything was learned."""
        return self._mean + DEVIATIONS * self._deviation

    def took(self, seconds: float) -> None:
        """Learn from an utterance."""
        if not self._mean:
            self._mean, self._deviation = seconds, seconds / 2
            return
        self._deviation += DEVIATION_SHARE * (abs(seconds - self._mean) - self._deviation)
        self._mean += MEAN_SHARE * (seconds - self._mean)


async def with_head_start(
    chunks: AsyncGenerator[AudioChunk, None],
    next_chunk_s: Callable[[], float],
    took: Callable[[float], None] = lambda _: None,
    held: Callable[[float], None] = lambda _: None,
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks; the first is held back for the time that the second is expected to take beyond the first's
    audio, or until the second is there.

    Args:
        next_chunk_s: expected seconds from the first chunk to the second; 0 when nothing is known.
        took: called with the seconds that it took.
        held: called with the seconds for which the first chunk was held back.
    """
    async with aclosing(chunks):
        first = await anext(chunks, None)
        if first is None:
            return
        longest_s = next_chunk_s() - first.seconds - UNHEARD_S
        second, begun_s = asyncio.ensure_future(_timed(anext(chunks, None), took)), time.monotonic()
        try:
            await asyncio.wait({second}, timeout=min(max(longest_s, 0.0), LONGEST_S))
            held(time.monotonic() - begun_s)
            yield first
            chunk = await second
        finally:
            second.cancel()  # A generator can't be closed while it runs.
            with suppress(asyncio.CancelledError, Exception):
                await second
        if chunk is not None:
            yield chunk
            async for chunk in chunks:
                yield chunk


async def _timed(chunk: Awaitable[AudioChunk | None], took: Callable[[float], None]) -> AudioChunk | None:
    begun_s = time.monotonic()
    made = await chunk
    if made is not None:
        took(time.monotonic() - begun_s)
    return made


class SpeechEngine:
    """Drives utterances; made in one thread, and used in the event loop that first speaks.

    Args:
        lm, waves: the networks.
        hop_growth: growth of chunks on this device, whatever an order says.
    """

    def __init__(self, lm: SpokenTokens, waves: Waves, hop_growth: float = CPU_HOP_GROWTH) -> None:
        self._lm, self._waves, self._hop_growth = lm, waves, hop_growth
        self._second = SecondChunk()
        self._spoken: set[SpokenUtterance] = set()
        self._life: asyncio.TimerHandle | None = None

    def begin(self, frame: Frame, calls: LoopCalls, answer: Answer) -> SpokenUtterance:
        """Begin the utterance of an order, in the event loop of ``calls``; an invalid one raises an error."""
        order = read_order(frame.header[ORDER])
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
        return DirectStages(self._lm, self._waves, calls, spoken.voice, group, *timeouts)

    def heard(
        self, chunks: AsyncGenerator[AudioChunk, None], order: Order, held: Callable[[float], None]
    ) -> AsyncGenerator[AudioChunk, None]:
        """The chunks as a listener gets them: the first one may wait for the second."""
        if not order.head_start:
            return chunks

        def took(seconds: float) -> None:
            if order.learns:
                self._second.took(seconds)

        return with_head_start(chunks, lambda: self._second.expected_s, took, held)

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
        self._voice: asyncio.Future[PromptTensors] | None = None
        self._held_s = 0.0
        self._playback = Playback(asyncio.get_running_loop().time)
        self._stages = engine.stages(order, self, calls)
        self._task = asyncio.get_running_loop().create_task(self._speak())

    def take(self, frame: Frame) -> None:
        """Take a further message of the caller; one that makes no sense raises an error."""
        if VOICE not in frame.header:
            take_text(frame, self._segments)
        elif self._voice is not None and not self._voice.done():
            tensors = read_tensors(frame)
            self._voice.set_result(PromptTensors(tensors["tokens"], tensors["mel"], tensors["speaker"]))

    def leave(self) -> None:
        """Stop speaking: the caller has gone."""
        self._task.cancel()

    def tell_of_life(self) -> None:
        self._answer(write_frame({}), False)

    async def voice(self) -> PromptTensors:
        """Ask the caller for the voice's tensors."""
        self._voice = asyncio.get_running_loop().create_future()
        self._answer(write_frame({VOICE: True}), False)
        async with asyncio.timeout(self._order.timeout_s):
            return await self._voice

    async def _speak(self) -> None:
        trace.begin(self._order.trace)
        try:
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
        chunks = speak(order.utterance, self._segments, self._stages, order.hop, order.sample_rate, cushion_s)
        async with aclosing(self._engine.heard(chunks, order, self._was_held)) as heard:
            async for chunk in heard:
                self._answer(chunk_frame(chunk, self._held_s), False)
                self._held_s = 0.0
                self._playback.sent(chunk.seconds)
                trace.note("the engine has sent audio")

    def _was_held(self, seconds: float) -> None:
        self._held_s = seconds
