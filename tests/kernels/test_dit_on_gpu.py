"""Kernels of CosyVoice3's estimator on a GPU, at the published sizes, against their plain twins."""

from __future__ import annotations

import pytest
import torch
from plain_kernels import (
    dense_plain,
    grouped_conv_plain,
    linear_step_plain,
    modulated_norm_plain,
    paged_attention_plain,
    residual_linear_plain,
    turned_qkv_plain,
)
from torch import nn

from cosyvoice_runtime.flow.kernels.convolutions import GroupedConvWeights, grouped_conv
from cosyvoice_runtime.flow.kernels.last_layer import SolverStep, linear_step
from cosyvoice_runtime.flow.kernels.layers import dense, modulated_norm, residual_linear
from cosyvoice_runtime.flow.kernels.paged_attention import paged_attention
from cosyvoice_runtime.flow.kernels.qkv import turned_qkv
from cosyvoice_runtime.flow.torch.call_pages import Places
from cosyvoice_runtime.flow.torch.dit import Rotation
from cosyvoice_runtime.flow.voice_flow import MAX_FRAMES
from cosyvoice_runtime.gpu.kernels.dit_tiles import FEW, MANY, SOME, DiTTiles
from gpu_close import CALLS, close, full, half
from small_places import random_places, two

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

CHANNELS, WIDE, HEADS, HEAD_DIM, BINS = 1024, 2048, 16, 64, 80
TAPS, GROUPS, OFFSET = 31, 16, 64
TAIL = OFFSET + (TAPS - 1) * CHANNELS
LAYER, STEP = 1, 1

ALL_TILES = pytest.mark.parametrize("tiles", [FEW, SOME, MANY], ids=["few", "some", "many"])


def gpu_places(before: list[int], lengths: list[int]) -> Places:
    torch.manual_seed(5)
    return random_places(
        before, lengths, page_frames=50, heads=HEADS, head_dim=HEAD_DIM, tail_size=TAIL,
        dtype=torch.float16, device="cuda",
    )  # fmt: skip


@ALL_TILES
@CALLS
def test_attention_layer(before, lengths, tiles: DiTTiles):
    places, expected = two(gpu_places(before, lengths))
    rows = places.rows * places.new_frames
    x, (gain, shift, gate) = full(rows, CHANNELS), full(3, CHANNELS)
    weight, bias = half(3 * CHANNELS, CHANNELS, scale=1 / 32), full(3 * CHANNELS)
    out, out_bias = half(CHANNELS, CHANNELS, scale=1 / 32), full(CHANNELS)
    rotation = Rotation.of(torch.arange(MAX_FRAMES, device="cuda")[None], HEAD_DIM)
    splits = tiles.splits(places.table.shape[1])
    normed, queries = half(2, rows, CHANNELS), half(2, rows, CHANNELS)
    mixed, weights = half(splits, rows, CHANNELS), full(splits, rows, HEADS)
    residual = torch.zeros(2, rows, CHANNELS, device="cuda")
    modulated_norm(x, gain, shift, normed[0], tiles.norm)
    turned_qkv(normed[0], weight, bias, rotation, queries[0], places, LAYER, STEP, tiles.qkv)
    paged_attention(queries[0], places, LAYER, STEP, mixed, weights, tiles.attention)
    residual_linear(mixed, weights, out, out_bias, residual[0], tiles.out, gate=gate)
    whole, whole_weights = half(1, rows, CHANNELS), full(1, rows, HEADS)
    modulated_norm_plain(x, gain, shift, normed[1])
    turned_qkv_plain(normed[1], weight, bias, rotation, queries[1], expected, LAYER, STEP)
    paged_attention_plain(queries[1], expected, LAYER, STEP, whole, whole_weights)
    residual_linear_plain(whole, whole_weights, out, out_bias, residual[1], gate)
    close(normed[0], normed[1])
    close(queries[0], queries[1])
    close(places.pages[8:], expected.pages[8:])
    close(residual[0], residual[1])


@ALL_TILES
@pytest.mark.parametrize("rows", [100, 236, 3200])
def test_feed_forward(rows, tiles: DiTTiles):
    torch.manual_seed(5)
    x, gate = half(rows, CHANNELS), full(CHANNELS)
    widen, narrow = half(WIDE, CHANNELS, scale=1 / 32), half(CHANNELS, WIDE, scale=1 / 45)
    hidden, nothing, residual = half(2, rows, WIDE), full(1, rows, HEADS), full(1, rows, CHANNELS)
    residual = residual.repeat(2, 1, 1)
    bias, narrow_bias = full(WIDE), full(CHANNELS)
    dense(x, widen, bias, hidden[0], tiles.widen, active=True)
    dense_plain(x, widen, bias, hidden[1], active=True)
    residual_linear(hidden[:1], nothing, narrow, narrow_bias, residual[0], tiles.narrow, gate=gate)
    residual_linear_plain(hidden[1:], nothing, narrow, narrow_bias, residual[1], gate)
    close(hidden[0], hidden[1])
    close(residual[0], residual[1])


@ALL_TILES
@CALLS
def test_start(before, lengths, tiles: DiTTiles):
    """The input's layer and both convolutions."""
    places, expected = two(gpu_places(before, lengths))
    rows = places.rows * places.new_frames
    packed, weight, bias = half(rows, 4 * BINS), half(CHANNELS, 4 * BINS, scale=1 / 18), full(CHANNELS)
    conv = nn.Conv1d(CHANNELS, CHANNELS, TAPS, groups=GROUPS, device="cuda").half().requires_grad_(False)
    weights = GroupedConvWeights.of(conv, OFFSET)
    x, order = full(2, rows, CHANNELS), half(2, rows, CHANNELS)
    dense(packed, weight, bias, x[0], tiles.enter)
    grouped_conv(x[0], weights, places, STEP, order[0], tiles.conv)
    tails = places.new_tails.clone()
    grouped_conv(order[0], weights, places, STEP, x[0], tiles.conv, added=True)
    dense_plain(packed, weight, bias, x[1])
    grouped_conv_plain(x[1], weights, expected, STEP, order[1])
    close(order[0], order[1])
    close(tails.nan_to_num(7), expected.new_tails.nan_to_num(7))
    grouped_conv_plain(order[1], weights, expected, STEP, x[1], added=True)
    close(x[0], x[1])
    close(places.new_tails.nan_to_num(7), expected.new_tails.nan_to_num(7))


@ALL_TILES
@pytest.mark.parametrize("rows", [50, 1600])
def test_last_layer_guidance_and_step(rows, tiles: DiTTiles):
    torch.manual_seed(5)
    hidden, weight, bias = half(2 * rows, CHANNELS), half(BINS, CHANNELS, scale=1 / 32), full(BINS)
    mel, packed = full(1, rows, BINS).repeat(2, 1, 1), half(1, 2 * rows, 4 * BINS).repeat(2, 1, 1)
    size = torch.tensor([0.3], device="cuda")
    linear_step(hidden, weight, bias, SolverStep(size, 0.7, mel[0], packed[0]), tiles.leave)
    linear_step_plain(hidden, weight, bias, SolverStep(size, 0.7, mel[1], packed[1]))
    close(mel[0], mel[1])
    close(packed[0], packed[1])
