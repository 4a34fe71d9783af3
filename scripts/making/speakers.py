"""The default voice of a made checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch

from cosyvoice_runtime.checkpoint.config import ModelConfig
from making.random_tensors import MEAN_LOG_MEL

NAME = "default"
TOKENS = 62
"""Speech tokens of the prompt, about 2.5 s; no multiple of a chunk, as with most recordings."""


def write_speakers(path: Path, config: ModelConfig, seed: int) -> None:
    """``spk2info.pt`` with one speaker: a random prompt without words, for cross-lingual use."""
    generator = torch.Generator().manual_seed(seed)
    flow = config.flow
    frames = flow.frames(TOKENS)
    speaker = {
        "flow_prompt_speech_token": torch.randint(
            flow.token_vocab_size, (1, TOKENS), generator=generator, dtype=torch.int32
        ),
        "prompt_speech_feat": MEAN_LOG_MEL + torch.randn(1, frames, flow.mel_bins, generator=generator),
        "flow_embedding": torch.randn(1, flow.speaker_dim, generator=generator),
    }
    torch.save({NAME: speaker}, path)
