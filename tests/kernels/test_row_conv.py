"""The vocoder's kernels alone against their plain twins, and packed weights against torch's convolutions."""

from __future__ import annotations

import pytest
import torch
from plain_kernels import row_conv_plain, snakes_plain, trimmed
from torch import Tensor, nn

from cosyvoice_runtime.gpu.kernels.tiles import Tile
from cosyvoice_runtime.vocoder.kernels.fused_decoder import convolution, strided, upsampling
from cosyvoice_runtime.vocoder.kernels.row_conv import RowConvWeights, row_conv, snakes

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TILE = Tile(16, 32, 16, stages=2)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize(("first", "dilation", "in_steps"), [(-1, 1, 21), (-6, 3, 21), (0, 1, 24)])
@pytest.mark.parametrize("residual", [True, False])
def test_convolution_residual_and_snake(first, dilation, in_steps, residual):
    weights = RowConvWeights(randn(4, 32, 48), randn(48), first, dilation)
    lengths = torch.tensor([21, 8], device=DEVICE)
    x = trimmed(randn(2, in_steps, 32), lengths)
    added, alpha = randn(2, 21, 48) if residual else None, torch.rand(48, device=DEVICE) * 4 + 0.1
    found, expected = torch.full((2, 2, 2, 21, 48), torch.nan, device=DEVICE)
    row_conv(x, weights, lengths, TILE, added, found[0], alpha, found[1])
    row_conv_plain(x, weights, lengths, added, expected[0], alpha, expected[1])
    same(found, expected)
    assert not found[:, 1, 8:].any()


def test_the_sum_may_take_the_residuals_place():
    weights, lengths = RowConvWeights(randn(3, 16, 16), randn(16), -1), torch.tensor([9], device=DEVICE)
    x, signal = randn(1, 9, 16), randn(1, 9, 16)
    expected = torch.empty_like(signal)
    row_conv_plain(x, weights, lengths, signal, expected)
    row_conv(x, weights, lengths, TILE, signal, signal)
    same(signal, expected)


@pytest.mark.parametrize("missing", [0, 1])
def test_sum_and_snakes(missing):
    lengths, alphas = torch.tensor([11, 4], device=DEVICE), torch.rand(3, 16, device=DEVICE) + 0.1
    x, added = randn(2, 11 - missing, 16), randn(2, 11, 16)
    found, expected = torch.full((2, 4, 2, 11, 16), torch.nan, device=DEVICE)
    snakes(x, added, alphas, lengths, found[0], found[1:])
    snakes_plain(x, added, alphas, lengths, expected[0], expected[1:])
    same(found, expected)


def computed(x: Tensor, weights: RowConvWeights, steps: int) -> Tensor:
    """Of ``[B, S, C]``, by the plain twin."""
    out = torch.empty(len(x), steps, len(weights.bias), device=DEVICE)
    row_conv_plain(x, weights, torch.full((len(x),), steps, device=DEVICE), out=out)
    return out


@pytest.mark.parametrize(("kernel", "rate"), [(16, 8), (11, 5), (7, 3), (8, 4), (3, 3)])
def test_a_transposed_convolution_writes_several_steps_at_once(kernel, rate):
    conv = nn.ConvTranspose1d(16, 16, kernel, rate, (kernel - rate) // 2).to(DEVICE)
    x = randn(2, 16, 6)
    found = computed(x.transpose(1, 2), upsampling(conv), 6)
    same(found.unflatten(2, (rate, 16)).flatten(1, 2), conv(x).transpose(1, 2).detach())


def test_a_strided_convolution_reads_blocks():
    conv = nn.Conv1d(16, 16, 6, 3).to(DEVICE)
    x = randn(2, 16, 15)
    found = computed(x.transpose(1, 2).unflatten(1, (5, 3)).flatten(2), strided(conv), 4)
    same(found, conv(x).transpose(1, 2).detach())


def test_channels_are_filled_with_zeros():
    conv = nn.Conv1d(5, 6, 3, padding=2, dilation=2).to(DEVICE)
    x = randn(1, 5, 9)
    wide = torch.zeros(1, 9, 16, device=DEVICE)
    wide[..., :5] = x.transpose(1, 2)
    found = computed(wide, convolution(conv), 9)
    same(found[..., :6], conv(x).transpose(1, 2).detach())
    assert not found[..., 6:].any()
