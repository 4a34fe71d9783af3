"""The stages of synthesis in one process: a speech LM and a token2wav without scheduling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup, WaveSettings
from cosyvoice_runtime.errors import CHECK_TELLS, NotFiniteError
from cosyvoice_runtime.lm.generation import FinishReason, Generation, SilenceFilter, TokenLimits
from cosyvoice_runtime.lm.prompt import Prompt, num_positions
from cosyvoice_runtime.lm.running_batch import RunningBatch
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_rows import TextRows
from cosyvoice_runtime.lm.text_segment import MOST_TEXT, TextPieces
from cosyvoice_runtime.local.networks import OpenBatch
from cosyvoice_runtime.token2wav.token2wav import AnyToken2Wav, flow_prompt
from cosyvoice_runtime.voice.voice import Voice


class LocalStages:
    """A batch of one in both networks, computed in the event loop's thread.

    Args:
        voices: of the segments by their keys, in the form that the flow takes; more may come.
        silent_tokens: silent speech tokens, of which only the first few of a run are kept.
        heads: layer and head of those that follow the text, for rows.
    """

    def __init__(
        self,
        open_batch: OpenBatch,
        token2wav: AnyToken2Wav,
        voices: Mapping[str, Voice],
        silent_tokens: Collection[int] = (),
        heads: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._heads = heads
        self._open_batch = open_batch
        self._token2wav = token2wav
        self._voices = voices
        self._silent_tokens = silent_tokens
        self._states: dict[str, Any] = {}

    def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        utterance_id: str,  # noqa: ARG002
        first_tokens: int,  # noqa: ARG002
        pieces: TextPieces | None,
        with_rows: bool,
    ) -> AsyncGenerator[TokenGroup, None]:
        text = len(prompt.text) if pieces is None else MOST_TEXT
        positions = num_positions(prompt.segments()) + TokenLimits.of(sampling, text).max_tokens
        batch = self._open_batch(positions if pieces is None else positions + MOST_TEXT, self._heads)
        generation = batch.add(prompt, sampling) if pieces is None else batch.add_open(prompt, sampling)
        rows = batch.follow(generation, prompt.text_positions) if with_rows else None
        return self._groups(batch, generation, pieces, rows)

    async def _groups(
        self, batch: RunningBatch, generation: Generation, pieces: TextPieces | None, rows: TextRows | None
    ) -> AsyncGenerator[TokenGroup, None]:
        """Each token as a group of one, then the reason for the end."""
        keep = SilenceFilter(self._silent_tokens)
        while generation.finish_reason is None:
            while pieces is not None and generation.waiting:
                ids = await pieces.get()
                batch.end_text(generation) if ids is None else batch.push_text(generation, ids)
            for progress in batch.step():
                if progress.tokens:
                    looked = None if rows is None else rows.take(len(progress.tokens))
                    yield TokenGroup.of(progress.tokens, keep, rows=looked)
            await asyncio.sleep(0)  # The consumer gets this token before the next one is drawn.
        if generation.error is not None:
            raise generation.error
        yield TokenGroup([], generation.finish_reason)

    async def wave(
        self,
        utterance_id: str,
        tokens: Sequence[int],
        position: int,
        last: bool,
        settings: WaveSettings,
        cushion_s: float,  # noqa: ARG002
    ) -> Floats:
        if position == 0 and utterance_id not in self._states:
            prompt = flow_prompt(self._voices[settings.voice_key])
            self._states[utterance_id] = self._token2wav.open(prompt, settings.noise_seed, settings.speed)
        state = self._states[utterance_id]
        self._token2wav.push(state, tokens, last)
        [samples] = self._token2wav.advance([state])
        if not np.isfinite(samples).all():
            raise NotFiniteError(self._token2wav.broken_stage(state), CHECK_TELLS)
        if last:
            self.drop(utterance_id)
        return samples

    async def prepare(self, voice_key: str) -> None:
        """Do nothing: one thread computes all, so that nothing would be earlier."""

    def drop(self, utterance_id: str) -> None:
        state = self._states.pop(utterance_id, None)
        if state is not None:
            self._token2wav.close(state)


class GivenTokens(LocalStages):
    """Given speech tokens in place of those of a speech LM."""

    def __init__(self, tokens: Iterable[int], token2wav: AnyToken2Wav, voices: Mapping[str, Voice]) -> None:
        self._tokens = tokens
        self._token2wav = token2wav
        self._voices = voices
        self._states = {}

    async def generate(
        self,
        prompt: Prompt,  # noqa: ARG002
        sampling: SamplingOptions,  # noqa: ARG002
        utterance_id: str,  # noqa: ARG002
        first_tokens: int,  # noqa: ARG002
        pieces: TextPieces | None,  # noqa: ARG002
        with_rows: bool,  # noqa: ARG002
    ) -> AsyncGenerator[TokenGroup, None]:
        for token in self._tokens:
            yield TokenGroup([token])
            await asyncio.sleep(0)
        yield TokenGroup([], FinishReason.STOP)
