"""Small random vocoders: one with the published time structure, one with another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import CausalVocoderConfig, VocoderConfig
from cosyvoice_runtime.vocoder.state import VocoderState
from cosyvoice_runtime.vocoder.torch import HiFT, source_noise
from making.architecture import FULL, TINY
from making.random_tensors import random_tensors
from vocoder_calls import stream

PUBLISHED = replace(FULL.vocoder, base_channels=16, f0_channels=12)
OTHER = replace(
    PUBLISHED,
    mel_bins=20,
    num_harmonics=2,
    sample_rate=16000,
    upsample_rates=(4, 3),
    upsample_kernels=(8, 5),
    istft_size=8,
    istft_hop=2,
    resblock_kernels=(3, 5),
    resblock_dilations=((1, 2), (1, 3)),
    source_kernels=(5, 3),
    source_dilations=((1,), (1, 2)),
)
CONFIGS = {"published": PUBLISHED, "other": OTHER}
CAUSAL = CausalVocoderConfig(**asdict(PUBLISHED), lookahead_frames=4)
OTHER_CAUSAL = CausalVocoderConfig(**asdict(OTHER), lookahead_frames=2)


@cache
def published_tensors(config: VocoderConfig) -> dict[str, Tensor]:
    return dict(random_tensors("hift", replace(TINY, vocoder=config), seed=5))


@cache
def small_hift(config: VocoderConfig = PUBLISHED, dtype: torch.dtype = torch.float64) -> HiFT:
    """In float64 by default, where a difference is never rounding."""
    return HiFT.from_tensors(config, published_tensors(config), dtype=dtype)


def random_mel(frames: int, seed: int = 0, config: VocoderConfig = PUBLISHED) -> Tensor:
    """[bins, frames] at the level that the random weights are made for."""
    return 2 * torch.randn(config.mel_bins, frames, generator=torch.Generator().manual_seed(seed)) - 6


def whole(hift: HiFT, mel: Tensor, seed: int | None = None) -> Tensor:
    """The utterance vocoded at once: [hop * frames]."""
    noise = None if seed is None else source_noise(seed, hift.config.hop).peek(mel.shape[1])
    return hift(mel[None], None if noise is None else torch.from_numpy(noise)[None])[0]


def streamed(hift: HiFT, state: VocoderState, mel: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """The utterance vocoded in chunks of these sizes."""
    chunks = mel.split(list(sizes), dim=1)
    last = [False] * (len(chunks) - 1) + [True]
    return [stream(hift, [state], [chunk], [is_last])[0] for chunk, is_last in zip(chunks, last, strict=True)]
