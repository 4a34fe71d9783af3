"""The vocoder's decoder in fused kernels against the plain modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import CausalVocoderConfig, VocoderConfig
from cosyvoice_runtime.vocoder.kernels.fused_decoder import FusedDecoder
from cosyvoice_runtime.vocoder.torch import HiFT
from cosyvoice_runtime.vocoder.torch.source import Rows
from making.architecture import TINY
from making.random_tensors import random_tensors
from wide_range import error, turned_vocoder

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PUBLISHED = replace(
    TINY.vocoder,
    base_channels=32,
    f0_channels=8,
    resblock_kernels=(3, 7),
    resblock_dilations=((1, 3), (2,)),
    source_dilations=((1,), (3,), (1,)),
)
OTHER = replace(
    PUBLISHED,
    mel_bins=20,
    upsample_rates=(4, 3),
    upsample_kernels=(8, 5),
    istft_size=8,
    istft_hop=2,
    source_kernels=(5, 3),
    source_dilations=((1,), (1, 2)),
)
CAUSAL = CausalVocoderConfig(**asdict(PUBLISHED), lookahead_frames=4)
OTHER_CAUSAL = CausalVocoderConfig(**asdict(OTHER), lookahead_frames=2)
"""Of CosyVoice3: the same sizes, other convolutions."""


def hift_of(config: VocoderConfig) -> HiFT:
    tensors = dict(random_tensors("hift", replace(TINY, vocoder=config), seed=5))
    return HiFT.from_tensors(config, tensors, DEVICE)


def inputs(config: VocoderConfig, frames: Sequence[int]) -> tuple[Tensor, Tensor, Rows]:
    """Mel and source of rows that end where they say; beyond there is noise."""
    torch.manual_seed(3)
    mel = 2 * torch.randn(len(frames), config.mel_bins, max(frames), device=DEVICE) - 6
    source = torch.randn(len(frames), config.hop * max(frames), device=DEVICE).tanh()
    return mel, source, Rows.of(frames, DEVICE)


def heard(waves: Tensor, config: VocoderConfig, frames: Sequence[int]) -> Tensor:
    """What lies within the rows."""
    return torch.cat([wave[: config.hop * count] for wave, count in zip(waves, frames, strict=True)])


@pytest.mark.parametrize("frames", [[2], [1, 3]], ids=["one", "uneven"])
@pytest.mark.parametrize(
    "config", [PUBLISHED, OTHER, CAUSAL, OTHER_CAUSAL], ids=["published", "other", "causal", "other causal"]
)
@torch.no_grad()
def test_fused_kernels_give_what_the_plain_modules_give(config, frames):
    hift = hift_of(config)
    fused = FusedDecoder(hift.decoder)
    mel, source, rows = inputs(config, frames)
    found = heard(fused(mel, source, rows), config, frames)
    expected = heard(hift.decoder(mel, source, rows), config, frames)
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("config", [OTHER, OTHER_CAUSAL], ids=["other", "other causal"])
@torch.no_grad()
def test_phases_of_many_turns_are_heard_in_half_precision(config):
    tensors = turned_vocoder(dict(random_tensors("hift", replace(TINY, vocoder=config), seed=5)))
    half, full = (HiFT.from_tensors(config, tensors, DEVICE, each) for each in (torch.float16, torch.float64))
    mel, source, rows = inputs(config, [6])
    fused = FusedDecoder(half.decoder)
    assert fused._head.weight.dtype == torch.float16
    assert error(fused(mel, source, rows), full.decoder(mel, source, rows)) < 0.01


@pytest.mark.parametrize("config", [OTHER, OTHER_CAUSAL], ids=["other", "other causal"])
@torch.no_grad()
def test_a_row_does_not_depend_on_those_beside_it(config):
    hift = hift_of(config)
    fused = FusedDecoder(hift.decoder)
    mel, source, rows = inputs(config, [6, 3])
    alone = fused(mel[1:, :, :3], source[1:, : 3 * config.hop], Rows.of([3], DEVICE))
    beside = fused(mel, source, rows)[1:, : 3 * config.hop]
    torch.testing.assert_close(beside, alone, atol=1e-5, rtol=1e-5)
