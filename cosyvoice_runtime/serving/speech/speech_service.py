"""The course of an utterance through the other models, for many clients at once."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm.limits import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling_options import SamplingOptions
from cosyvoice_runtime.pipeline.flow_prompt import cut_prompt
from cosyvoice_runtime.pipeline.hop import HopPolicy
from cosyvoice_runtime.pipeline.playback import Playback
from cosyvoice_runtime.pipeline.prompting import lm_prompts
from cosyvoice_runtime.pipeline.request import SpeechRequest
from cosyvoice_runtime.pipeline.seeds import derived_seed, fresh_seed
from cosyvoice_runtime.pipeline.stages import Stages, WaveSettings
from cosyvoice_runtime.serving.speech.token_queue import TokenQueue
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer

SAMPLE_RATE = 24_000
OFFLINE_CUSHION_S = 8.0
"""Whoever waits for all of the audio can wait as long as a listener with this much left to play."""


class Listener(Protocol):
    """Whoever hears the utterance."""

    def require(self) -> None:
        """Raise if nobody listens any more."""

    def send(self, samples: Tensor, finish_reason: FinishReason | None) -> None:
        """Take a chunk of waveform, float32 ``[n]``; the reason comes with a piece's last one."""


class SpeechService:
    """Speaks requests with the help of the other models. Safe for threads.

    Args:
        timeout_s: longest silence of the speech LM.
        cut_prompts: cut the voice's prompt for token2wav, so that the first chunk is as short as the policy
            wants it (:func:`~cosyvoice_runtime.pipeline.flow_prompt.cut_prompt`).
        now: clock in seconds.
    """

    def __init__(
        self,
        stages: Stages,
        front_end: TextFrontEnd,
        tokenizer: TextTokenizer,
        hop: HopPolicy,
        timeout_s: float,
        cut_prompts: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cut_prompts = cut_prompts
        self._stages = stages
        self._front_end = front_end
        self._tokenizer = tokenizer
        self._hop = hop
        self._timeout_s = timeout_s
        self._now = now

    def speak(self, request: SpeechRequest, listener: Listener) -> None:
        """Speak a request, piece of text after piece.

        Raises:
            InvalidInput: the request can't be served.
            Exception: what a stage or the listener raised; the utterance is then dropped everywhere.
        """
        seed = fresh_seed() if request.seed is None else request.seed
        playback = Playback(self._now)
        heard = request.voice
        if self._cut_prompts:
            heard = cut_prompt(heard, self._hop.block_tokens, self._hop.min_first_tokens)
        for segment, prompt in enumerate(lm_prompts(request, self._front_end, self._tokenizer)):
            listener.require()
            sampling = dataclasses.replace(request.sampling, seed=derived_seed(seed, "sampling", segment))
            sound = WaveSettings(heard, derived_seed(seed, "noise", segment), request.speed)
            cushion = (lambda: playback.cushion_s) if request.streaming else (lambda: OFFLINE_CUSHION_S)
            piece = Piece(self._stages, self._hop, sound, listener, playback, cushion)
            piece.speak(prompt, sampling, self._timeout_s)


class Piece:
    """One piece of text on its way from speech tokens to waveform.

    Args:
        cushion: seconds of audio that are left to play.
    """

    def __init__(
        self,
        stages: Stages,
        hop: HopPolicy,
        sound: WaveSettings,
        listener: Listener,
        playback: Playback,
        cushion: Callable[[], float],
    ) -> None:
        self._stages = stages
        self._hop = hop
        self._sound = sound
        self._prompt_tokens = len(sound.voice.speech_tokens)
        self._listener = listener
        self._playback = playback
        self._cushion = cushion
        self._id = uuid.uuid4().hex
        self._tokens: list[int] = []
        self._passed_on = 0
        self._end = 0

    def speak(self, prompt: Prompt, sampling: SamplingOptions, timeout_s: float) -> None:
        """Follow the tokens of the prompt to the last sample."""
        first_tokens = self._hop.first_tokens(self._prompt_tokens)
        queue = TokenQueue(self._stages.generate(prompt, sampling, self._id, first_tokens), timeout_s)
        try:
            while queue.finish_reason is None:
                self._tokens += queue.take()
                self._send_ready()
            if queue.finish_reason is FinishReason.ERROR:
                raise CosyVoiceError("the speech LM's answer ended without a reason")
            self._pass_on(len(self._tokens), queue.finish_reason)
        except BaseException:
            if queue.finish_reason is None:
                self._stages.stop(self._id)
            self._stages.drop(self._id)
            raise

    def _send_ready(self) -> None:
        """Send the chunks that can go out now."""
        self._listener.require()
        while (end := self._chunk_end()) is not None:
            self._end = end
            self._pass_on(end + self._hop.lookahead_tokens, None)
            self._listener.require()

    def _chunk_end(self) -> int | None:
        return self._hop.chunk_end(self._prompt_tokens, self._end, len(self._tokens), self._cushion())

    def _pass_on(self, end: int, reason: FinishReason | None) -> None:
        """Make the tokens before ``end`` audible."""
        tokens = self._tokens[self._passed_on : end]
        last = reason is not None
        samples = self._stages.wave(self._id, tokens, self._passed_on, last, self._sound, self._cushion())
        self._passed_on = end
        self._listener.send(samples, reason)
        self._playback.sent(len(samples) / SAMPLE_RATE)
