"""Voices and reference audio without networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.voice import Voice, VoiceStore
from cosyvoice_runtime.voice.digest import content_hash

CHECKPOINT = "checkpoint-a"


def make_voice(
    seed: int, *, tokens: int = 3, checkpoint_id: str = CHECKPOINT, transcript: str = "hi"
) -> Voice:
    """A voice that differs from every other seed's in each tensor."""
    random = np.random.default_rng(seed)
    return Voice(
        key=content_hash("test", seed, tokens, transcript, checkpoint_id),
        transcript=transcript,
        speech_tokens=random.integers(0, 6561, tokens, np.int32),
        prompt_mel=random.standard_normal((2 * tokens, 80), np.float32),
        speaker_embedding=random.standard_normal(16, np.float32),
        checkpoint_id=checkpoint_id,
    )


def make_audio(seed: int, seconds: float = 1.0, rate: int = 16_000) -> Audio:
    random = np.random.default_rng(seed)
    return Audio(np.float32(0.1) * random.standard_normal(round(seconds * rate), np.float32), rate)


def same_voice(left: Voice, right: Voice) -> bool:
    texts = (left.key, left.transcript, left.checkpoint_id) == (
        right.key,
        right.transcript,
        right.checkpoint_id,
    )
    return texts and all(
        np.array_equal(getattr(left, name), getattr(right, name))
        for name in ("speech_tokens", "prompt_mel", "speaker_embedding")
    )


def open_store(directory: Path, **limits: int) -> VoiceStore:
    return VoiceStore(directory, CHECKPOINT, **limits)


def voice_path(directory: Path, voice: Voice) -> Path:
    return directory / "voices" / f"{voice.key}.safetensors"
