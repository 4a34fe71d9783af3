from dataclasses import replace

import pytest
import torch

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.vocoder.geometry import context, stages
from cosyvoice_runtime.vocoder.torch.source import Rows
from small_hift import CONFIGS, PUBLISHED, random_mel, small_hift


def test_published_kernels_need_15_frames_around_and_21_ahead() -> None:
    found = context(PUBLISHED)
    assert (found.left, found.right, found.lookahead, found.f0_lookahead) == (15, 15, 21, 6)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_context_is_what_the_decoder_reads(config: VocoderConfig) -> None:
    found, hop = context(config), config.hop
    frames = 2 * found.left + 3
    middle = found.left + 1
    read = _frames_read(config, frames, [middle * hop, (middle + 1) * hop - 1])
    assert read.min() == middle - found.left
    assert read.max() == middle + found.right


def _frames_read(config: VocoderConfig, frames: int, samples: list[int]) -> torch.Tensor:
    """Frames whose mel or source has any influence on these output samples."""
    mel = random_mel(frames, config=config)[None].double().requires_grad_()
    source = (0.1 * torch.randn(1, frames * config.hop)).requires_grad_()
    rows = Rows.of([frames], mel.device)
    small_hift(config).decoder(mel, source, rows)[0, samples].sum().backward()
    by_mel = mel.grad[0].abs().sum(0)
    by_source = source.grad.view(frames, config.hop).abs().sum(1)
    return torch.nonzero(by_mel + by_source)


def test_kernel_that_cannot_multiply_the_length_is_refused() -> None:
    with pytest.raises(CheckpointError, match="upsample kernel 15 does not fit rate 8"):
        stages(replace(PUBLISHED, upsample_kernels=(15, 11, 7)))
