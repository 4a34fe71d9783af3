"""Kernels compiled for the GPU at the published model's sizes, against their plain twins."""

from __future__ import annotations

import pytest
import torch
from plain_kernels import (
    causal_conv_plain,
    norm_attention_plain,
    norm_qkv_plain,
    norm_widen_plain,
    paged_attention_plain,
    residual_linear_plain,
)

from cosyvoice_runtime.flow.kernels.convolutions import Activation, ConvWeights, causal_conv
from cosyvoice_runtime.flow.kernels.layers import norm_widen, residual_linear
from cosyvoice_runtime.flow.kernels.paged_attention import norm_attention, paged_attention
from cosyvoice_runtime.flow.kernels.qkv import norm_qkv
from cosyvoice_runtime.flow.torch.call_pages import Places
from cosyvoice_runtime.gpu.kernels.tiles import JOINT, LARGE, LEAN, MEDIUM, SMALL, Tiles
from gpu_close import CALLS, TOLERANCE, close, full, half
from small_places import kept, random_places, two

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

CHANNELS, HEADS, HEAD_DIM, PAGE, TAIL = 256, 8, 64, 50, 5120
INNER = HEADS * HEAD_DIM
LAYER, STEP = 1, 1

ALL_TILES = pytest.mark.parametrize("tiles", [SMALL, MEDIUM, LARGE], ids=["small", "medium", "large"])


EIGHT_BITS = pytest.mark.parametrize("eight_bits", [False, True], ids=["float16", "int8"])
"""How keys and values are kept."""
CODES_APART = 5e-3
"""In 8 bits a number that rounds otherwise in float16 may fall to the code beside its own."""


def gpu_places(before: list[int], lengths: list[int], eight_bits: bool = False) -> Places:
    torch.manual_seed(5)
    return random_places(
        before, lengths, page_frames=PAGE, heads=HEADS, head_dim=HEAD_DIM, tail_size=TAIL,
        dtype=torch.float16, device="cuda", eight_bits=eight_bits,
    )  # fmt: skip


@EIGHT_BITS
@ALL_TILES
@CALLS
def test_attention_layer(before, lengths, tiles: Tiles, eight_bits):
    places, expected = two(gpu_places(before, lengths, eight_bits))
    rows = places.rows * places.new_frames
    x, weight, bias = full(rows, CHANNELS), half(3 * INNER, CHANNELS, scale=1 / 16), full(3 * INNER)
    splits = tiles.splits(places.table.shape[1])
    queries, mixed, weights = half(2, rows, INNER), half(splits, rows, INNER), full(splits, rows, HEADS)
    norm_qkv(x, weight, bias, queries[0], places, LAYER, STEP, tiles.qkv)
    paged_attention(queries[0], places, LAYER, STEP, mixed, weights, tiles.attention)
    out, out_bias, residual = half(CHANNELS, INNER, scale=1 / 16), full(CHANNELS), torch.zeros_like(x)
    residual_linear(mixed, weights, out, out_bias, residual, tiles.out)
    whole, whole_weights, result = half(1, rows, INNER), full(1, rows, HEADS), torch.zeros_like(x)
    norm_qkv_plain(x, weight, bias, queries[1], expected, LAYER, STEP)
    paged_attention_plain(queries[1], expected, LAYER, STEP, whole, whole_weights)
    residual_linear_plain(whole, whole_weights, out, out_bias, result)
    close(queries[0], queries[1])
    tolerance = CODES_APART if eight_bits else TOLERANCE
    close(kept(places, 8), kept(expected, 8), tolerance)
    close(residual, result, tolerance)


@pytest.mark.parametrize("tile", [JOINT, LEAN])
@EIGHT_BITS
@pytest.mark.parametrize("splits", [1, 4])
def test_attention_layer_of_one_chunk_in_one_kernel(splits, tile, eight_bits):
    places, expected = two(gpu_places([0, 3, 21], [50, 14, 36], eight_bits))
    rows = places.rows * places.new_frames
    x, weight, bias = full(rows, CHANNELS), half(3 * INNER, CHANNELS, scale=1 / 16), full(3 * INNER)
    mixed, weights = half(splits, rows, INNER), full(splits, rows, HEADS)
    norm_attention(x, weight, bias, places, LAYER, STEP, mixed, weights, tile)
    whole, whole_weights = half(1, rows, INNER), full(1, rows, HEADS)
    norm_attention_plain(x, weight, bias, expected, LAYER, STEP, whole, whole_weights)
    joined = torch.zeros(2, rows, INNER, device="cuda")
    identity, nothing = torch.eye(INNER, device="cuda"), torch.zeros(INNER, device="cuda")
    residual_linear_plain(mixed, weights, identity, nothing, joined[0])
    residual_linear_plain(whole, whole_weights, identity, nothing, joined[1])
    tolerance = CODES_APART if eight_bits else TOLERANCE
    close(kept(places, 8), kept(expected, 8), tolerance)
    close(joined[0], joined[1], tolerance)


@ALL_TILES
@pytest.mark.parametrize("rows", [100, 236, 3200])
def test_feed_forward(rows, tiles: Tiles):
    torch.manual_seed(5)
    x = full(rows, CHANNELS)
    widen, narrow = half(1024, CHANNELS, scale=1 / 16), half(CHANNELS, 1024, scale=1 / 32)
    hidden, nothing, result = half(2, rows, 1024), full(1, rows, HEADS), x.clone()
    norm_widen(x, widen, full(1024) * 0, hidden[0], tiles.widen)
    norm_widen_plain(x, widen, full(1024) * 0, hidden[1])
    residual_linear(hidden[:1], nothing, narrow, full(CHANNELS) * 0, x, tiles.narrow)
    residual_linear_plain(hidden[1:], nothing, narrow, full(CHANNELS) * 0, result)
    close(hidden[0], hidden[1])
    close(x, result)


@ALL_TILES
@CALLS
@pytest.mark.parametrize(("channels", "active"), [(256, True), (256, False), (320, False), (512, False)])
def test_convolution(before, lengths, channels, active, tiles: Tiles):
    places, expected = two(gpu_places(before, lengths))
    rows = places.rows * places.new_frames
    x, activation = full(rows, channels), Activation(*full(3, channels)) if active else None
    weights = ConvWeights(half(2 * CHANNELS, 3 * channels, scale=1 / 28), full(2 * CHANNELS), 64)
    out = full(2, rows, 2 * CHANNELS)
    causal_conv(x, weights, places, STEP, out[0], tiles.conv, activation)
    causal_conv_plain(x, weights, expected, STEP, out[1], activation)
    close(out[0], out[1])
    close(places.new_tails.nan_to_num(7), expected.new_tails.nan_to_num(7))
