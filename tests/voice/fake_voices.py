"""Voices and reference audio without networks."""

from __future__ import annotations

import torch

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.voice.digest import content_hash
from cosyvoice_runtime.voice.voice import Voice

CHECKPOINT = "checkpoint-a"


def make_voice(
    seed: int, *, tokens: int = 3, checkpoint_id: str = CHECKPOINT, transcript: str = "hi"
) -> Voice:
    """A voice that differs from every other seed's in each tensor."""
    random = torch.Generator().manual_seed(seed)
    return Voice(
        key=content_hash("test", seed, tokens, transcript, checkpoint_id),
        transcript=transcript,
        speech_tokens=torch.randint(0, 6561, (tokens,), generator=random, dtype=torch.int32),
        prompt_mel=torch.randn(2 * tokens, 80, generator=random),
        speaker_embedding=torch.randn(16, generator=random),
        checkpoint_id=checkpoint_id,
    )


def make_audio(seed: int, seconds: float = 1.0, rate: int = 16_000) -> Audio:
    random = torch.Generator().manual_seed(seed)
    return Audio(0.1 * torch.randn(round(seconds * rate), generator=random), rate)


def same_voice(left: Voice, right: Voice) -> bool:
    texts = (left.key, left.transcript, left.checkpoint_id) == (
        right.key,
        right.transcript,
        right.checkpoint_id,
    )
    return texts and all(
        torch.equal(getattr(left, name), getattr(right, name))
        for name in ("speech_tokens", "prompt_mel", "speaker_embedding")
    )
