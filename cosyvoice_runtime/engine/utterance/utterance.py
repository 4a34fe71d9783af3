"""The driver of an utterance: text segments in, chunks of waveform out, from the speech LM and token2wav."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import compress
from types import TracebackType
from typing import Protocol

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.silence import SilenceGate
from cosyvoice_runtime.engine.utterance.gaps import with_gaps
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.request import AudioChunk, Told, ToldTokens, Utterance, derived_seed
from cosyvoice_runtime.engine.utterance.trimming import trimmed
from cosyvoice_runtime.engine.utterance.verification import Checks, verified
from cosyvoice_runtime.engine.utterance.voices_ahead import VoicesAhead
from cosyvoice_runtime.errors import CosyVoiceError, StageError
from cosyvoice_runtime.lm.generation import FinishReason, SilenceFilter
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import SegmentQueue, Silence, TextPieces, TextSegment
from cosyvoice_runtime.metrics import trace


@dataclass(frozen=True)
class TokenGroup:
    """Speech tokens that arrived together; the last group says why they ended.

    Attributes:
        drawn: all tokens that were drawn, also such that are not spoken, and the end, as `lm.spoken` tells
            them; none where the speech LM can't go on from them.
        rows: what each token that was drawn looks at in the segment's text, float32 ``[rows, text tokens]``
            of sum 1; None where nobody asked, or the speech LM's attention is not seen.
        are_spoken: of each row, whether its token is spoken.
    """

    tokens: Sequence[int]
    finish_reason: FinishReason | None = None
    drawn: Sequence[int] = ()
    rows: Floats | None = None
    are_spoken: Sequence[bool] = ()

    @classmethod
    def of(
        cls,
        tokens: Sequence[int],
        keep: SilenceFilter,
        finish_reason: FinishReason | None = None,
        drawn: Sequence[int] = (),
        rows: Floats | None = None,
    ) -> TokenGroup:
        """The group of tokens that were drawn, without those that are not spoken."""
        if rows is None:
            return cls(keep(tokens), finish_reason, drawn)
        are_spoken = [keep.speaks(token) for token in tokens]
        return cls(list(compress(tokens, are_spoken)), finish_reason, drawn, rows, are_spoken)


@dataclass(frozen=True)
class WaveSettings:
    """The sound of a segment, the same in every call for it; later segments ``continue`` an utterance."""

    voice_key: str
    noise_seed: int
    speed: float = 1.0
    continues: bool = False


class Stages(Protocol):
    """The speech LM and token2wav for one request, whose voice they know."""

    def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        utterance_id: str,
        first_tokens: int,
        pieces: TextPieces | None,
        with_rows: bool,
    ) -> AsyncGenerator[TokenGroup, None]:
        """Speech tokens as they are drawn, at least ``first_tokens`` in the first group.

        Closing the generator before its end stops the speech LM; it returns at once and never raises.

        Args:
            pieces: the text, if it comes in pieces; the prompt's own text is empty then, and length limits
                follow from the length of all pieces, within ``ceiling`` and ``max_tokens``.
            with_rows: groups are to bring `TokenGroup.rows`, where the speech LM's attention is seen and the
                text is there as a whole.
        """

    async def wave(
        self,
        utterance_id: str,
        tokens: Sequence[int],
        position: int,
        last: bool,
        settings: WaveSettings,
        cushion_s: float,
    ) -> Floats:
        """The next samples, float32 ``[n]``, of an utterance; ``position`` tokens of it went before.

        Args:
            cushion_s: seconds of audio that the listener still has to play; the less, the more urgent.
        """

    async def prepare(self, voice_key: str) -> None:
        """Have token2wav know a voice before a segment needs it; never raises, as the segment will."""

    def drop(self, utterance_id: str) -> None:
        """Have token2wav forget an utterance that will not be finished; returns at once and never raises."""


UNHEARD_S = 0.05
"""Pauses within speech that are no underrun until they add up to more: a plosive's closure is as long."""


class Playback:
    """A listener's playback, which starts with the first chunk and pauses when chunks come late."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._end: float | None = None
        self._paused_s = 0.0
        self.seconds = 0.0
        """Seconds of audio sent."""
        self.underruns = 0
        """Number of underruns: each time, pauses before late chunks had added up to more than
        ``UNHEARD_S``."""

    @property
    def cushion_s(self) -> float:
        """Seconds of audio sent and not yet played."""
        return 0.0 if self._end is None else max(self._end - self._now(), 0.0)

    def sent(self, seconds: float) -> None:
        """Note a chunk that was sent just now."""
        self.seconds += seconds
        now = self._now()
        self._paused_s += 0.0 if self._end is None else max(now - self._end, 0.0)
        if self._paused_s > UNHEARD_S:
            self._paused_s = 0.0
            self.underruns += 1
        self._end = seconds + (now if self._end is None else max(self._end, now))


class TokenFeed:
    """Reads groups of tokens in a task of its own, so that they pile up while audio is made.

    Used in ``async with``; leaving it before the end of the tokens stops the speech LM.

    Attributes:
        tokens: all that have come so far.
        told: what was drawn since the chunk before.
        finish_reason: why the tokens ended; None while more may come.
    """

    def __init__(self, groups: AsyncGenerator[TokenGroup, None]) -> None:
        self.tokens: list[int] = []
        self.told = ToldTokens()
        self.finish_reason: FinishReason | None = None
        self._groups = groups
        self._news = asyncio.Event()
        self._error: Exception | None = None

    async def more(self, longest_s: float | None = None) -> None:
        """Wait for further tokens or for their end, at most ``longest_s``; the speech LM's error is
        raised."""
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._news.wait()
        self._news.clear()
        if self._error is not None:
            raise self._error

    async def __aenter__(self) -> TokenFeed:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _read(self) -> None:
        try:
            async with aclosing(self._groups) as groups:
                async for group in groups:
                    self.tokens += group.tokens
                    self.told.add(group.drawn, group.rows, group.are_spoken)
                    self._news.set()
                    if group.finish_reason is not None:
                        self._finish(group.finish_reason)
            if self.finish_reason is None:
                self._error = CosyVoiceError("the speech LM's answer ended without a reason")
        except Exception as error:
            self._error = error
        finally:
            self._news.set()

    def _finish(self, reason: FinishReason) -> None:
        if reason is FinishReason.CANCELLED:  # A client that leaves cancels the task instead.
            raise CosyVoiceError("the speech LM was told to stop before the end of the utterance")
        if reason is FinishReason.ERROR:
            raise CosyVoiceError("the speech LM failed without a reason")
        self.finish_reason = reason


OFFLINE_CUSHION_S = 8.0
"""Cushion assumed for requests answered as a whole, whose chunks may be long and may wait."""


def speak(
    utterance: Utterance,
    segments: SegmentQueue,
    stages: Stages,
    hop: HopPolicy,
    sample_rate: int,
    cushion_s: Callable[[], float],
    checks: Checks | None = None,
) -> AsyncGenerator[AudioChunk, None]:
    """Speak segments of text one after another, each chunk as soon as it is there.

    The same segments with the same seed give the same audio, whenever they come. Closing the generator, or an
    error, frees the utterance in all stages. Silence is left out and put between segments as the utterance
    asks for it.

    Args:
        cushion_s: seconds of audio that the listener still has to play.
        checks: whether segments say their texts, and what is done if not; None where nobody asks.

    Raises:
        Exception: what a stage raised.
    """
    chunks = _spoken(utterance, segments, stages, hop, sample_rate, cushion_s, checks)
    follows = utterance.first_segment > 0
    if utterance.sentence_pause_s is not None:
        chunks = with_gaps(chunks, utterance.sentence_pause_s, follows)
    if utterance.trim_silence == "off":
        return chunks
    trims_end = utterance.trim_silence == "both"
    return trimmed(chunks, SilenceGate(sample_rate, trims_end, trims_start=not follows))


async def _spoken(
    utterance: Utterance,
    segments: SegmentQueue,
    stages: Stages,
    hop: HopPolicy,
    sample_rate: int,
    cushion_s: Callable[[], float],
    checks: Checks | None,
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks of :func:`speak` with all of their silence."""
    cushion_s = cushion_s if utterance.streaming else lambda: OFFLINE_CUSHION_S
    index = utterance.first_segment
    with closing(VoicesAhead(utterance.sound.voice_key, stages.prepare)) as ahead:
        while (segment := await segments.next()) is not None:
            if isinstance(segment, Silence):
                yield AudioChunk.silent(segment.seconds, sample_rate, index)
                continue
            attempt = partial(_attempt, utterance, segment, index, stages, hop, sample_rate, cushion_s)
            if checks is None or segment.checked is None:
                speech = attempt(0)
            else:
                speech = verified(attempt, checks, segment.checked, utterance.streaming)
            async with aclosing(speech) as chunks:
                async for chunk in chunks:
                    yield chunk
                    # The first chunk of a segment goes before the next one's voice.
                    ahead.look((segment.sound or utterance.sound).voice_key, segments)
            if chunk.finish_reason is FinishReason.INCOMPLETE and not (checks and checks.goes_on):
                return
            index += 1


async def _attempt(
    utterance: Utterance,
    segment: TextSegment,
    index: int,
    stages: Stages,
    hop: HopPolicy,
    sample_rate: int,
    cushion_s: Callable[[], float],
    redraws: int,
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks of a segment, drawn with the seed that stands for so many draws of it before."""
    purpose = f"sampling again {redraws}" if redraws else "sampling"
    sampling = dataclasses.replace(utterance.sampling, seed=derived_seed(utterance.seed, purpose, index))
    noise = derived_seed(utterance.seed, "noise", index)
    sound = segment.sound or utterance.sound
    continues = index > utterance.first_segment
    settings = WaveSettings(sound.voice_key, noise, sound.speed, continues)
    hop_of_segment = hop.of_segment(sound.speed, utterance.streaming)
    speech = SegmentSpeech(stages, hop_of_segment, settings, sound.prompt_tokens, cushion_s)
    async with aclosing(speech.chunks(segment, sampling, utterance.with_rows)) as chunks:
        async for samples, reason, told in chunks:
            yield AudioChunk(samples, sample_rate, index, reason, **told._asdict())


class SegmentSpeech:
    """One segment of text while it becomes speech tokens and waveform."""

    def __init__(
        self,
        stages: Stages,
        hop: HopPolicy,
        settings: WaveSettings,
        prompt_tokens: int,
        cushion_s: Callable[[], float],
    ) -> None:
        self._stages = stages
        self._hop = hop
        self._settings = settings
        self._cushion_s = cushion_s
        self._prompt_tokens = prompt_tokens
        self._id = uuid.uuid4().hex
        trace.also(self._id)
        self._passed_on = 0
        self._chunk_end = 0
        self._open = False

    async def chunks(
        self, segment: TextSegment, sampling: SamplingOptions, with_rows: bool = False
    ) -> AsyncGenerator[tuple[Floats, FinishReason | None, Told], None]:
        """Samples, float32 ``[n]``, of each chunk, and what it tells; the reason comes with the last one."""
        feed = TokenFeed(self._tokens(segment, sampling, with_rows))
        try:
            async with feed:
                while feed.finish_reason is None:
                    await feed.more(self._wait_s(len(feed.tokens)))
                    while self._next_chunk(len(feed.tokens)):
                        end = self._chunk_end + self._hop.lookahead_tokens
                        yield await self._wave(feed.tokens, end), None, feed.told.take()
                samples = await self._wave(feed.tokens, len(feed.tokens), last=True)
                yield samples, feed.finish_reason, feed.told.take()
        finally:
            if segment.pieces is not None:
                segment.pieces.leave()
            if self._open:
                self._stages.drop(self._id)

    def _tokens(
        self, segment: TextSegment, sampling: SamplingOptions, with_rows: bool
    ) -> AsyncGenerator[TokenGroup, None]:
        first, with_rows = self._hop.first_tokens(self._prompt_tokens), with_rows and segment.pieces is None
        return self._stages.generate(segment.prompt, sampling, self._id, first, segment.pieces, with_rows)

    def _wait_s(self, received: int) -> float | None:
        return self._hop.wait_s(self._prompt_tokens, self._chunk_end, received, self._cushion_s())

    def _next_chunk(self, received: int) -> bool:
        """Whether another chunk can and should go out now, up to ``_chunk_end``."""
        end = self._hop.chunk_end(self._prompt_tokens, self._chunk_end, received, self._cushion_s())
        self._chunk_end = end or self._chunk_end
        return end is not None

    async def _wave(self, tokens: Sequence[int], end: int, last: bool = False) -> Floats:
        """Samples of the tokens before ``end`` that have not been sent."""
        new, position = tokens[self._passed_on : end], self._passed_on
        self._open = True  # The utterance is open before the answer comes.
        try:
            samples = await self._stages.wave(
                self._id, new, position, last, self._settings, self._cushion_s()
            )
        except StageError:
            self._open = position > 0  # A refused opening leaves nothing behind.
            raise
        trace.note("the driver has audio")
        self._open = not last
        self._passed_on = end
        return samples
