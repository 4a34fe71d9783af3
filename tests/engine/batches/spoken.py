"""Voices and utterances for the small networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from cosyvoice_runtime.engine.batches import PromptTensors, WaveChunk
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.token2wav.token2wav import Token2Wav


def prompt_tensors(token2wav: Token2Wav, tokens: int, seed: int = 0) -> PromptTensors:
    """A made-up voice with ``tokens`` prompt tokens."""
    config = token2wav.flow.flow.config
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(config.token_vocab_size, (tokens,), generator=generator, dtype=torch.int32)
    mel = -6 + 2 * torch.randn(config.frames_per_token * tokens, config.mel_bins, generator=generator)
    return PromptTensors(
        ids.numpy(), mel.numpy(), torch.randn(config.speaker_dim, generator=generator).numpy()
    )


def speech_tokens(count: int, seed: int) -> list[int]:
    return torch.randint(6561, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def chunks_of(
    name: str,
    tokens: Sequence[int],
    ends: Sequence[int],
    key: str,
    prompt: PromptTensors | None,
    seed: int = 7,
    speed: float = 1.0,
) -> list[WaveChunk]:
    """The utterance cut at ``ends``, the last of which is the number of tokens."""
    starts = [0, *ends[:-1]]
    return [
        WaveChunk(name, tokens[start:end], start, end == len(tokens), key, seed, speed, prompt)
        for start, end in zip(starts, ends, strict=True)
    ]


def alone(token2wav: Token2Wav, prompt: PromptTensors, tokens: Sequence[int], seed: int = 7) -> np.ndarray:
    """The waveform that the library itself makes of the whole utterance, without any cache."""
    voice: FlowPrompt = prompt.flow_prompt()
    state = token2wav.open(voice, seed)
    token2wav.push(state, tokens, last=True)
    [wave] = token2wav.advance([state])
    token2wav.close(state)
    return wave
