"""Speech tokens to waveform, chunk by chunk, for many utterances at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from cosyvoice_runtime.errors import InvalidInput, WithdrawnError
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.request_count import RequestCount
from cosyvoice_runtime.serving.lm.first_tokens import FirstTokensSource, Spoken
from cosyvoice_runtime.serving.not_finite import NotFiniteCount, token2wav_remedies
from cosyvoice_runtime.serving.shared_gpu import NOT_SHARED, SharedGpus
from cosyvoice_runtime.serving.token2wav.chunk import PromptTensors, WaveChunk
from cosyvoice_runtime.serving.token2wav.load import load_wave_service
from cosyvoice_runtime.serving.token2wav.service import WaveOutcome
from cosyvoice_runtime.serving.triton.request import Inputs, answer
from cosyvoice_runtime.settings import Token2WavSettings

PROMPT_INPUTS = ("prompt_speech_tokens", "prompt_speech_feat", "prompt_spk_embedding")


class WaveModel:
    """One chunk of an utterance in, the waveform it makes certain out; see config.pbtxt.

    Args:
        speech_lm: that computes in this process, whose tokens chunks may be of.
    """

    def __init__(
        self,
        settings: Token2WavSettings,
        shared: SharedGpus = NOT_SHARED,
        speech_lm: FirstTokensSource | None = None,
    ) -> None:
        self.name = settings.name
        self._speech_lm = speech_lm
        self.count = RequestCount(self.name)
        self.not_finite = NotFiniteCount(Metrics(self.name), token2wav_remedies(settings))
        self.service = load_wave_service(settings, Metrics(self.name), shared)

    def prepare(self) -> None:
        """See `WaveRouter.prepare`; Python's collector must not look through all that is there meanwhile."""
        self.service.prepare()

    def execute(self, requests: Sequence[Any]) -> list[None]:
        """Queue the chunks; their answers come from a thread of its device."""
        for request in requests:
            self.count.enter()
            try:
                self._begin(request, Inputs(request))
            except Exception as error:  # of whatever kind: the other requests go on
                self._deliver(request, error)
        return [None] * len(requests)

    def _begin(self, request: Any, inputs: Inputs) -> None:
        chunk, speech = decode(inputs), inputs.text("tokens_of")
        if speech is None or chunk.cancel:
            self.service.submit(chunk, partial(self._deliver, request))
        elif self._speech_lm is None:
            raise InvalidInput("tokens_of", speech, "the speech LM computes in another process")
        else:
            self._speech_lm.first_tokens(speech, partial(self._begin_spoken, request, chunk))

    def _begin_spoken(self, request: Any, chunk: WaveChunk, spoken: Spoken | None) -> None:
        try:
            if spoken is None or request.get_response_sender().is_cancelled():
                limit = "the stream ended, or was left, before the chunk's tokens were there"
                raise WithdrawnError(f"tokens_of: {limit}")
            chunk = dataclasses.replace(chunk, tokens=spoken.tokens, last=spoken.last)
            self.service.submit(chunk, partial(self._deliver, request))
        except Exception as error:  # of whatever kind: the speech LM has other readers
            self._deliver(request, error)

    def _deliver(self, request: Any, outcome: WaveOutcome) -> None:
        outputs = (
            self.not_finite.told(outcome) if isinstance(outcome, Exception) else {"waveform": outcome[None]}
        )
        try:
            answer(request, self.name, outputs)
        finally:
            self.count.leave()

    def finalize(self) -> None:
        self.service.close()


def decode(inputs: Inputs) -> WaveChunk:
    utterance_id = inputs.required_text("utterance_id")
    if inputs.scalar("cancel", default=False):
        return WaveChunk.forgetting(utterance_id)
    spoken_later = inputs.array("tokens_of") is not None
    return WaveChunk(
        utterance_id=utterance_id,
        tokens=() if spoken_later else inputs.required("speech_tokens").tolist(),
        position=inputs.scalar("position", required=True),
        last=inputs.scalar("last", required=True),
        voice_key=inputs.required_text("voice_key"),
        noise_seed=inputs.scalar("noise_seed", required=True),
        speed=inputs.scalar("speed", required=True),
        prompt=decode_prompt(inputs),
        cushion_s=inputs.scalar("cushion", default=0.0),
        continues=inputs.scalar("continues", default=False),
    )


def decode_prompt(inputs: Inputs) -> PromptTensors | None:
    mel = inputs.shaped("prompt_speech_feat")
    if mel is None:
        return None
    if mel.ndim < 2 or mel.size != mel.shape[-2] * mel.shape[-1]:
        raise InvalidInput("prompt_speech_feat", mel.shape, "one matrix of frames and mel bins is expected")
    # Copies: the request's memory is the server's again after the answer, the voice stays.
    tokens, feat, speaker = (np.array(inputs.required(name)) for name in PROMPT_INPUTS)
    return PromptTensors(tokens, feat.reshape(mel.shape[-2:]), speaker)
