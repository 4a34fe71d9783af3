"""The inputs of ``cosyvoice2`` and ``cosyvoice2_offline`` as a request."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.audio.reference import reference_audio
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.sampling_options import SamplingOptions
from cosyvoice_runtime.pipeline.request import SpeechRequest
from cosyvoice_runtime.serving.speech.voice_book import VoiceBook
from cosyvoice_runtime.serving.triton.inputs import Inputs

REFERENCE_RATE = 16_000
SAMPLING_FIELDS = {
    "top_k": "top_k",
    "top_p": "top_p",
    "temperature": "temperature",
    "repetition_penalty": "repetition_penalty",
    "max_tokens": "max_tokens",
}
"""Inputs and the sampling options that they set."""


def speech_request(
    inputs: Inputs, voices: VoiceBook, sampling: SamplingOptions, max_characters: int, streaming: bool
) -> SpeechRequest:
    """Read and check a request, and find its voice.

    Args:
        sampling: what the deployment uses where the request says nothing.
        max_characters: longest text.

    Raises:
        InvalidInput: naming the input that can't be served.
    """
    target_text = inputs.text("target_text")
    if target_text is None:
        raise InvalidInput("target_text", None, "this input is required")
    if len(target_text) > max_characters:
        raise InvalidInput("target_text", f"{len(target_text)} characters", f"at most {max_characters}")
    instruct_text = inputs.text("instruct_text")
    cross_lingual = bool(inputs.scalar("cross_lingual", default=False))
    recording = _recording(inputs)
    transcript = inputs.text("reference_text")
    needs_transcript = recording is not None and instruct_text is None and not cross_lingual
    if needs_transcript and not (transcript or "").strip():
        raise InvalidInput(
            "reference_text", transcript, "what reference_wav says, unless cross_lingual or instruct_text"
        )
    return SpeechRequest(
        text=target_text,
        voice=voices.resolve(inputs.text("voice"), recording, transcript),
        instruct_text=instruct_text,
        cross_lingual=cross_lingual,
        language=inputs.text("language") or "auto",
        speed=inputs.scalar("speed", default=1.0),
        seed=inputs.scalar("seed"),
        sampling=_sampling(inputs, sampling),
        streaming=streaming,
    )


def _recording(inputs: Inputs) -> Audio | None:
    samples = inputs.array("reference_wav")
    rate = inputs.scalar("reference_sample_rate", default=REFERENCE_RATE)
    length = inputs.scalar("reference_wav_len")
    if samples is None:
        if length is not None:
            raise InvalidInput("reference_wav_len", length, "it goes with reference_wav only")
        return None
    return reference_audio(torch.from_numpy(samples), rate, length)


def _sampling(inputs: Inputs, sampling: SamplingOptions) -> SamplingOptions:
    given: dict[str, Any] = {field: inputs.scalar(name) for name, field in SAMPLING_FIELDS.items()}
    given["strategy"] = inputs.text("sampling_strategy")
    given = {field: value for field, value in given.items() if value is not None}
    try:
        return dataclasses.replace(sampling, **given)
    except InvalidInput as error:
        if error.field == "strategy":
            raise InvalidInput("sampling_strategy", given["strategy"], error.limit) from None
        raise
