"""What the other models of the repository are given, by the names of their tensors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.pipeline.stages import WaveSettings
from cosyvoice_runtime.pipeline.text_segment import MOST_TEXT, TextPieces
from cosyvoice_runtime.voice.voice import Voice


def sampling_inputs(sampling: SamplingOptions, text_tokens: int) -> dict[str, Any]:
    """Sampling and length of ``tensorrt_llm``'s request."""
    limits = TokenLimits.of(sampling, text_tokens)
    return {
        "request_output_len": limits.max_tokens,
        "min_tokens": limits.min_tokens,
        "streaming": True,
        "seed": sampling.seed or 0,
        "sampling_strategy": sampling.strategy,
        "runtime_top_k": sampling.top_k,
        "runtime_top_p": sampling.top_p,
        "temperature": sampling.temperature,
        "repetition_penalty": sampling.repetition_penalty,
        "ras_window": sampling.window,
        "ras_threshold": sampling.tau,
    }


def open_sampling_inputs(sampling: SamplingOptions) -> dict[str, Any]:
    """The same for a request whose text comes in pieces: its length limits follow there, once it is known."""
    limits = TokenLimits.of(sampling, MOST_TEXT)
    inputs = sampling_inputs(sampling, 1) | {"text_open": True, "request_output_len": limits.max_tokens}
    del inputs["min_tokens"]
    return inputs


async def further_text(pieces: TextPieces) -> AsyncIterator[Mapping[str, Any]]:
    """``tensorrt_llm``'s further requests of a stream whose text comes in pieces."""
    while (ids := await pieces.get()) is not None:
        yield {"more_text": ids}
    if pieces.complete:
        yield {"end_text": True}


def wave_inputs(utterance_id: str, position: int, settings: WaveSettings, cushion_s: float) -> dict[str, Any]:
    """token2wav's, but for the tokens and whether they are the last."""
    return {
        "utterance_id": utterance_id,
        "position": position,
        "last": False,
        "voice_key": settings.voice.prompt_key,
        "noise_seed": settings.noise_seed,
        "speed": settings.speed,
        "cushion": cushion_s,
        "continues": settings.continues,
    }


def reference_inputs(samples: Floats) -> dict[str, Any]:
    """The extractors'."""
    return {"reference_wav": samples, "reference_wav_len": len(samples)}


def voice_inputs(voice: Voice) -> dict[str, Any]:
    """token2wav's, for a voice that it does not know."""
    return {
        "prompt_speech_tokens": voice.speech_tokens,
        "prompt_speech_feat": voice.prompt_mel,
        "prompt_spk_embedding": voice.speaker_embedding,
    }
