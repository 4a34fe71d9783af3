"""The one driver of an utterance: text prompts in, chunks of waveform out, by way of the stages."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config import FlowConfig
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput, StageError
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.metrics import moments
from cosyvoice_runtime.pipeline.flow_prompt import cut_prompt
from cosyvoice_runtime.pipeline.request import AudioChunk, SpeechRequest, derived_seed, fresh_seed
from cosyvoice_runtime.pipeline.stages import Stages, TokenGroup, WaveSettings
from cosyvoice_runtime.pipeline.text_segment import TextPieces
from cosyvoice_runtime.settings import CosyVoice2Settings
from cosyvoice_runtime.settings.cosyvoice2 import CPU_HOP_GROWTH
from cosyvoice_runtime.voice.voice import Voice
from cosyvoice_runtime.wave.any_token2wav import MORE_THAN_ANY

LEAST_GROWTH = CPU_HOP_GROWTH
"""A chunk may always take half of what its listener has to play."""
LEAST_WAIT_S = 0.001
"""By which a cushion is below a limit and not at it."""
UNHEARD_S = 0.05
"""Pauses within speech that are no underrun until they add up to more: a plosive's closure is as long."""


class Playback:
    """A clock that starts with the first chunk and runs dry when chunks come late.

    Args:
        now: seconds, from any start.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._end: float | None = None
        self._paused_s = 0.0
        self.seconds = 0.0
        """Seconds of audio sent."""
        self.underruns = 0
        """Times that the pauses since the last one, of chunks that came after the audio before them had been
        played, added up to more than ``UNHEARD_S``."""

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


CUT_FROM_S = 5.0
"""Of a reference: a fifth of it is cut at most. A third of two to three seconds costs 1.1 +- 1.0 points of
word errors, and of likeness nothing that shows (``benchmarks/heard_prompts.py``)."""


@dataclass(frozen=True)
class HopPolicy:
    """Chunks end where the flow's blocks end and grow with the audio the client still has to play.

    A chunk leaves when all of it is computed. So a client with little left to play gets a block at a time,
    however many tokens are there already; one that is well supplied can wait for a longer chunk, which costs
    less work for each second of speech.

    Attributes:
        block_tokens: tokens of one block of the chunk-causal mask.
        lookahead_tokens: tokens after a block that must be known.
        min_first_tokens: fewest tokens of the first chunk.
        hop_tokens: tokens of a chunk when the client is about to run dry.
        max_hop_tokens: tokens of a chunk when the client is well supplied.
        token_rate: tokens per second.
        growth: seconds of the next chunk for each second that the client still has to play; fewer where the
            machine makes less than that in half of the time, down to half a second.
        cut_from_tokens: prompts of so many tokens and more are cut at their start, so that the first chunk
            needs no more than ``min_first_tokens``; None for none.
        share_s: asked for the seconds that a second of speech takes as the machine is shared just then; 0 if
            that isn't known.
        runs_dry: somebody listens meanwhile, for whom what is here goes out in time.
        fixed_chunks: whether an utterance sounds different with other chunks. They then begin after the
            prompt.
        early_blocks: of a first chunk that ends one block after another that holds new tokens, or needs
            them, that one is computed while the speech LM goes on.

    Raises:
        InvalidInput: prompts are to be cut where chunks don't depend on them.
    """

    block_tokens: int
    lookahead_tokens: int
    min_first_tokens: int
    hop_tokens: int
    max_hop_tokens: int
    token_rate: int
    growth: float = CPU_HOP_GROWTH
    share_s: Callable[[], float] = lambda: 0.0
    runs_dry: bool = True
    cut_from_tokens: int | None = None
    fixed_chunks: bool = False
    early_blocks: bool = False

    def __post_init__(self) -> None:
        if self.cut_from_tokens is not None and self.fixed_chunks:
            raise InvalidInput("cut_prompts", True, "this checkpoint's chunks don't depend on the prompt")

    @classmethod
    def of(cls, flow: FlowConfig, settings: CosyVoice2Settings) -> HopPolicy:
        """What the settings say, for a checkpoint's flow."""
        return cls(
            block_tokens=flow.encoder.chunk_tokens,
            lookahead_tokens=flow.waits_for(settings.flow_lookahead),
            min_first_tokens=settings.first_hop,
            hop_tokens=settings.hop_tokens,
            max_hop_tokens=settings.max_hop_tokens,
            token_rate=flow.token_rate,
            growth=settings.growth,
            cut_from_tokens=_cut_from_tokens(flow, settings.cut_prompts),
            fixed_chunks=flow.fixed_chunks,
            early_blocks=settings.early_blocks and not flow.fixed_chunks,
        )

    def of_request(self, request: SpeechRequest) -> HopPolicy:
        """Where chunks are heard, a request that is answered as a whole is one chunk.

        So is one of another speed: chunks that are stretched don't overlap by what they are faded over.
        """
        if self.fixed_chunks and (request.speed != 1.0 or not request.streaming):
            return dataclasses.replace(self, min_first_tokens=MORE_THAN_ANY)
        streaming = request.streaming
        return dataclasses.replace(self, early_blocks=self.early_blocks and streaming, runs_dry=streaming)

    def chunk_end(self, prompt_tokens: int, previous_end: int, received: int, cushion_s: float) -> int | None:
        """New tokens up to the end of the chunk that can and should go out now; None is not yet.

        Args:
            prompt_tokens: speech tokens of the flow's prompt.
            previous_end: end of the chunk before; 0 before the first.
            received: new tokens so far.
            cushion_s: seconds of audio sent and not yet played.
        """
        end = self._boundary_after(prompt_tokens, previous_end + self._fewest(previous_end, cushion_s))
        return end if end + self.lookahead_tokens <= received else None

    def wait_s(self, prompt_tokens: int, previous_end: int, received: int, cushion_s: float) -> float | None:
        """Seconds until a chunk of what is here should go out though no more tokens come.

        Args:
            prompt_tokens, previous_end, received, cushion_s: as of :meth:`chunk_end`, which has none yet.

        Returns:
            None where that takes more tokens, or nobody runs dry.
        """
        if not (previous_end and self.runs_dry):
            return None
        if self.chunk_end(prompt_tokens, previous_end, received, 0.0) is None:
            return None
        blocks = (received - self.lookahead_tokens - previous_end) // self.block_tokens
        return max(cushion_s - (blocks + 1) * self._block_cushion_s, 0.0) + LEAST_WAIT_S

    def flow_voice(self, voice: Voice) -> Voice:
        """A voice as the flow gets it, with its prompt cut if that is wanted."""
        if self.cut_from_tokens is None or len(voice.speech_tokens) < self.cut_from_tokens:
            return voice
        return cut_prompt(voice, self.block_tokens, self.min_first_tokens)

    def first_tokens(self, prompt_tokens: int) -> int:
        """New tokens that the first chunk needs."""
        return self._boundary_after(prompt_tokens, self.min_first_tokens) + self.lookahead_tokens

    def early_tokens(self, prompt_tokens: int) -> int:
        """New tokens that the first chunk's early block needs; 0 where there is none.

        Blocks that need none are the voice's own.
        """
        tokens = self.first_tokens(prompt_tokens) - self.block_tokens
        begun = prompt_tokens + tokens > self.lookahead_tokens
        return max(tokens, 0) if self.early_blocks and begun else 0

    def _fewest(self, previous_end: int, cushion_s: float) -> int:
        """Tokens of the next chunk, up to a block's end, by what the client can play meanwhile."""
        if previous_end == 0:
            return self.min_first_tokens
        blocks = int(cushion_s / self._block_cushion_s)
        return max(1, min(max(self.hop_tokens, blocks * self.block_tokens), self.max_hop_tokens))

    @property
    def _block_cushion_s(self) -> float:
        """What a client has to play for each block of the next chunk."""
        share_s = self.share_s()
        most = max(LEAST_GROWTH, LEAST_GROWTH / share_s) if share_s else self.growth
        return self.block_tokens / self.token_rate / min(self.growth, most)

    def _boundary_after(self, prompt_tokens: int, end: int) -> int:
        """First block boundary at or after ``end`` new tokens."""
        prompt_tokens = 0 if self.fixed_chunks else prompt_tokens
        return -(-(prompt_tokens + end) // self.block_tokens) * self.block_tokens - prompt_tokens


def _cut_from_tokens(flow: FlowConfig, cut_prompts: str) -> int | None:
    if cut_prompts == "auto":
        return None if flow.fixed_chunks else round(CUT_FROM_S * flow.token_rate)
    return 0 if cut_prompts == "true" else None


class TokenFeed:
    """Reads groups of tokens in a task of its own, so that they pile up while audio is made.

    Used in ``async with``; leaving it before the end of the tokens stops the speech LM.

    Attributes:
        tokens: all that have come so far.
        finish_reason: why the tokens ended; None while more may come.
    """

    def __init__(self, groups: AsyncGenerator[TokenGroup, None]) -> None:
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._groups = groups
        self._news = asyncio.Event()
        self._error: Exception | None = None

    async def more(self, longest_s: float | None = None) -> None:
        """Wait for further tokens or for their end.

        Args:
            longest_s: not longer than this; None: as long as it takes.

        Raises:
            CosyVoiceError: the speech LM ended without a reason, or stopped because somebody told it to.
            Exception: what the speech LM raised.
        """
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
                    moments.note("cosyvoice2 has tokens")
                    self.tokens += group.tokens
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
        if reason is FinishReason.CANCELLED:  # a client that leaves cancels the task instead
            raise CosyVoiceError("the speech LM was told to stop before the end of the utterance")
        if reason is FinishReason.ERROR:
            raise CosyVoiceError("the speech LM failed without a reason")
        self.finish_reason = reason


OFFLINE_CUSHION_S = 8.0
"""Cushion assumed for requests answered as a whole: their chunks may be long and may wait."""


async def speak(
    request: SpeechRequest,
    prompts: Sequence[Prompt],
    stages: Stages,
    hop: HopPolicy,
    sample_rate: int,
    cushion_s: Callable[[], float],
) -> AsyncGenerator[AudioChunk, None]:
    """Speak a request, segment of text after segment, each chunk as soon as it is there.

    Closing the generator, or an error, frees the utterance in all stages.

    Args:
        prompts: what the speech LM reads for each segment.
        cushion_s: seconds of audio that the listener still has to play.

    Raises:
        Exception: what a stage raised.
    """
    speech = Speech(request, stages, hop, cushion_s)
    for index, prompt in enumerate(prompts):
        async with aclosing(speech.segment(index, prompt)) as chunks:
            async for samples, reason in chunks:
                whole = reason is not None and index == len(prompts) - 1
                characters = len(request.text) if whole else None
                yield AudioChunk(samples, sample_rate, index, reason, characters)


class Speech:
    """A request's segments, each with seeds of its own.

    Args:
        cushion_s: seconds of audio that the listener still has to play.
    """

    def __init__(
        self, request: SpeechRequest, stages: Stages, hop: HopPolicy, cushion_s: Callable[[], float]
    ) -> None:
        self._request = request
        self._seed = fresh_seed() if request.seed is None else request.seed
        self._stages = stages
        self._hop = hop.of_request(request)
        self._cushion_s = cushion_s if request.streaming else lambda: OFFLINE_CUSHION_S
        self._voice = hop.flow_voice(request.voice)

    def segment(
        self, index: int, prompt: Prompt, pieces: TextPieces | None = None
    ) -> AsyncGenerator[tuple[Floats, FinishReason | None], None]:
        """Samples, float32 ``[n]``, of each chunk of a segment; the reason comes with the last one.

        Args:
            pieces: the text, when it comes in pieces.
        """
        request = self._request
        sampling = dataclasses.replace(request.sampling, seed=derived_seed(self._seed, "sampling", index))
        settings = WaveSettings(self._voice, derived_seed(self._seed, "noise", index), request.speed)
        segment = SegmentSpeech(self._stages, self._hop, settings, self._cushion_s)
        return segment.chunks(prompt, sampling, pieces)


class SegmentSpeech:
    """One segment of text on its way from speech tokens to waveform."""

    def __init__(
        self, stages: Stages, hop: HopPolicy, settings: WaveSettings, cushion_s: Callable[[], float]
    ) -> None:
        self._stages = stages
        self._hop = hop
        self._settings = settings
        self._cushion_s = cushion_s
        self._prompt_tokens = len(settings.voice.speech_tokens)
        self._id = uuid.uuid4().hex
        moments.also(self._id)
        self._passed_on = 0
        self._chunk_end = 0
        self._early_tokens = hop.early_tokens(self._prompt_tokens)
        self._early: list[Floats] = []
        self._open = False

    async def chunks(
        self, prompt: Prompt, sampling: SamplingOptions, pieces: TextPieces | None = None
    ) -> AsyncGenerator[tuple[Floats, FinishReason | None], None]:
        """Samples, float32 ``[n]``, of each chunk; the reason comes with the last one."""
        try:
            async with TokenFeed(self._tokens(prompt, sampling, pieces)) as feed:
                while feed.finish_reason is None:
                    await feed.more(self._wait_s(len(feed.tokens)))
                    if self._is_early(len(feed.tokens)):
                        self._early.append(await self._wave(feed.tokens, self._early_tokens))
                    while self._next_chunk(len(feed.tokens)):
                        end = self._chunk_end + self._hop.lookahead_tokens
                        yield self._with_early(await self._wave(feed.tokens, end)), None
                samples = await self._wave(feed.tokens, len(feed.tokens), last=True)
                yield self._with_early(samples), feed.finish_reason
        finally:
            if pieces is not None:
                pieces.leave()
            if self._open:
                self._stages.drop(self._id)

    def _tokens(
        self, prompt: Prompt, sampling: SamplingOptions, pieces: TextPieces | None
    ) -> AsyncGenerator[TokenGroup, None]:
        first_tokens = self._early_tokens or self._hop.first_tokens(self._prompt_tokens)
        if pieces is None:
            return self._stages.generate(prompt, sampling, self._id, first_tokens)
        return self._stages.generate_from_pieces(prompt, pieces, sampling, self._id, first_tokens)

    def _is_early(self, received: int) -> bool:
        """Whether the early block can be computed before the rest of the first chunk is there."""
        whole = self._hop.first_tokens(self._prompt_tokens)
        return not self._passed_on and 0 < self._early_tokens <= received < whole

    def _with_early(self, samples: Floats) -> Floats:
        """After what the early block made audible."""
        whole = np.concatenate([*self._early, samples]) if self._early else samples
        self._early = []
        return whole

    def _wait_s(self, received: int) -> float | None:
        return self._hop.wait_s(self._prompt_tokens, self._chunk_end, received, self._cushion_s())

    def _next_chunk(self, received: int) -> bool:
        """Whether another chunk can and should go out now, up to ``_chunk_end``."""
        end = self._hop.chunk_end(self._prompt_tokens, self._chunk_end, received, self._cushion_s())
        self._chunk_end = end or self._chunk_end
        return end is not None

    async def _wave(self, tokens: Sequence[int], end: int, last: bool = False) -> Floats:
        """Make the tokens before ``end`` audible."""
        new, position = tokens[self._passed_on : end], self._passed_on
        self._open = True  # from the moment of sending: nobody knows whether a lost call opened it
        try:
            samples = await self._stages.wave(
                self._id, new, position, last, self._settings, self._cushion_s()
            )
        except StageError:
            self._open = position > 0  # a refused opening leaves nothing behind
            raise
        moments.note("cosyvoice2 has audio")
        self._open = not last
        self._passed_on = end
        return samples
