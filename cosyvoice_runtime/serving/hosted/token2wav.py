"""The model ``token2wav``: speech tokens in, waveform out, chunk by chunk for many utterances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from cosyvoice_runtime.engine.batches.chunk import PromptTensors, WaveChunk, WaveOutcome
from cosyvoice_runtime.engine.batches.load import follow_waves, open_router
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.metrics import RequestCount
from cosyvoice_runtime.serving.not_finite import NotFiniteCount, token2wav_remedies
from cosyvoice_runtime.serving.triton.request import Inputs, answer
from cosyvoice_runtime.settings import Token2WavSettings

PROMPT_INPUTS = ("prompt_speech_tokens", "prompt_speech_feat", "prompt_spk_embedding")


class WaveModel:
    """Takes chunks of utterances and returns their waveform; config.pbtxt has its tensors."""

    def __init__(self, settings: Token2WavSettings, shared: SharedGpu | None = None) -> None:
        self.name = settings.name
        self.count = RequestCount(self.name)
        self.not_finite = NotFiniteCount(Metrics(self.name), token2wav_remedies(settings))
        self.router = open_router(settings, Metrics(self.name), shared)
        self.waves = follow_waves(settings, self.router, Metrics(self.name))

    def prepare(self) -> None:
        """Prepare the device as `WaveRouter.prepare` does, while Python's garbage collector is off."""
        self.router.prepare()

    def execute(self, requests: Sequence[Any]) -> list[None]:
        """Queue the chunks, whose answers come from a thread of their device."""
        for request in requests:
            self.count.enter()
            try:
                self.waves.submit(decode(Inputs(request)), partial(self._deliver, request))
            except Exception as error:  # After any error the other requests are still answered.
                self._deliver(request, error)
        return [None] * len(requests)

    def submit(self, chunk: WaveChunk, deliver: Callable[[WaveOutcome], None]) -> None:
        """Submit a chunk as `Waves` says."""
        self.waves.submit(chunk, deliver)

    def with_remedy(self, error: Exception) -> Exception:
        return self.not_finite.with_remedy(error)

    def _deliver(self, request: Any, outcome: WaveOutcome) -> None:
        outputs = (
            self.not_finite.with_remedy(outcome)
            if isinstance(outcome, Exception)
            else {"waveform": outcome[None]}
        )
        try:
            answer(request, self.name, outputs)
        finally:
            self.count.leave()

    def finalize(self) -> None:
        self.router.close()
        self.waves.close()


def decode(inputs: Inputs) -> WaveChunk:
    utterance_id = inputs.required_text("utterance_id")
    if inputs.scalar("cancel", default=False):
        return WaveChunk.forgetting(utterance_id)
    return WaveChunk(
        utterance_id=utterance_id,
        tokens=inputs.required("speech_tokens").tolist(),
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
    # The arrays are copied: Triton reuses the request's memory, but the voice is kept.
    tokens, feat, speaker = (np.array(inputs.required(name)) for name in PROMPT_INPUTS)
    return PromptTensors(tokens, feat.reshape(mel.shape[-2:]), speaker)
