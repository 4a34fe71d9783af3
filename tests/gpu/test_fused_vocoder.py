"""The vocoder's decoder in fused kernels and float16 against the plain modules in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyvoice_runtime.engine.runtimes.torch_runtime import load_token2wav
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from cosyvoice_runtime.vocoder.torch import HiFT
from cosyvoice_runtime.vocoder.torch.source import Rows

TOLERANCE = 1e-2
"""|difference| / |waveform|: about what the plain modules differ by in float16."""
FRAMES = [86, 40, 71]


def vocoder(checkpoint: Path, dtype: str) -> HiFT:
    settings = Token2WavSettings(checkpoint_dir=checkpoint, device="cuda", dtype=dtype, max_flow_pages=1)
    return load_token2wav(settings.resolved(Machine(cores=1, gpu=True))).torch_vocoder.hift


@pytest.fixture(scope="module")
def truth(checkpoint: Path) -> HiFT:
    return vocoder(checkpoint, "float32")


@pytest.fixture(scope="module")
def fused(checkpoint: Path) -> HiFT:
    pytest.importorskip("triton")
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("the GPU's compute capability is below 8.0")
    from cosyvoice_runtime.vocoder.kernels.fused_decoder import FusedDecoder

    hift = vocoder(checkpoint, "float16")
    hift.fuse(FusedDecoder(hift.decoder))
    return hift


@torch.no_grad()
def decoded(hift: HiFT) -> Tensor:
    """All rows one after the other."""
    generator = torch.Generator().manual_seed(1)
    mel = 2 * torch.randn(len(FRAMES), hift.config.mel_bins, max(FRAMES), generator=generator) - 6
    source = torch.randn(len(FRAMES), hift.config.hop * max(FRAMES), generator=generator).mul(0.1).tanh()
    waves = hift.decoder(mel.to(hift.device), source.to(hift.device), Rows.of(FRAMES, hift.device))
    return torch.cat([wave[: hift.config.hop * frames] for wave, frames in zip(waves, FRAMES, strict=True)])


def test_fused_kernels_decode_what_float32_decodes(truth, fused):
    expected = decoded(truth)
    assert float((decoded(fused) - expected).norm() / expected.norm()) < TOLERANCE


def test_the_same_batch_gives_the_same_bits(fused):
    assert torch.equal(decoded(fused), decoded(fused))
