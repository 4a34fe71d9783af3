"""The one driver of an utterance: text prompts in, chunks of waveform out, by way of the stages."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from torch import Tensor

from cosyvoice_runtime.errors import StageError
from cosyvoice_runtime.lm.limits import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling_options import SamplingOptions
from cosyvoice_runtime.pipeline.flow_prompt import cut_prompt
from cosyvoice_runtime.pipeline.hop import HopPolicy
from cosyvoice_runtime.pipeline.request import AudioChunk, SpeechRequest
from cosyvoice_runtime.pipeline.seeds import derived_seed, fresh_seed
from cosyvoice_runtime.pipeline.stages import Stages, WaveSettings
from cosyvoice_runtime.pipeline.token_feed import TokenFeed

OFFLINE_CUSHION_S = 8.0
"""Whoever waits for all of the audio can wait as long as a listener with this much left to play."""


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
    seed = fresh_seed() if request.seed is None else request.seed
    voice = request.voice
    if hop.cut_prompts:
        voice = cut_prompt(voice, hop.block_tokens, hop.min_first_tokens)
    cushion = cushion_s if request.streaming else lambda: OFFLINE_CUSHION_S
    for index, prompt in enumerate(prompts):
        sampling = dataclasses.replace(request.sampling, seed=derived_seed(seed, "sampling", index))
        settings = WaveSettings(voice, derived_seed(seed, "noise", index), request.speed)
        segment = SegmentSpeech(stages, hop, settings, cushion)
        async with aclosing(segment.chunks(prompt, sampling)) as chunks:
            async for samples, reason in chunks:
                yield AudioChunk(samples, sample_rate, index, reason)


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
        self._passed_on = 0
        self._chunk_end = 0
        self._open = False

    async def chunks(
        self, prompt: Prompt, sampling: SamplingOptions
    ) -> AsyncGenerator[tuple[Tensor, FinishReason | None], None]:
        """Samples, float32 ``[n]``, of each chunk; the reason comes with the last one."""
        first_tokens = self._hop.first_tokens(self._prompt_tokens)
        try:
            async with TokenFeed(self._stages.generate(prompt, sampling, self._id, first_tokens)) as feed:
                while feed.finish_reason is None:
                    await feed.more()
                    while self._next_chunk(len(feed.tokens)):
                        end = self._chunk_end + self._hop.lookahead_tokens
                        yield await self._wave(feed.tokens, end), None
                yield await self._wave(feed.tokens, len(feed.tokens), last=True), feed.finish_reason
        finally:
            if self._open:
                self._stages.drop(self._id)

    def _next_chunk(self, received: int) -> bool:
        """Whether another chunk can and should go out now, up to ``_chunk_end``."""
        end = self._hop.chunk_end(self._prompt_tokens, self._chunk_end, received, self._cushion_s())
        self._chunk_end = end or self._chunk_end
        return end is not None

    async def _wave(self, tokens: Sequence[int], end: int, last: bool = False) -> Tensor:
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
        self._open = not last
        self._passed_on = end
        return samples
