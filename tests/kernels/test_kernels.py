"""Each kernel alone against its plain twin: uneven pasts and lengths, sizes that tiles don't divide."""

from __future__ import annotations

import copy

import pytest
import solver_steps
import torch
from plain_kernels import (
    causal_conv_plain,
    norm_attention_plain,
    norm_mish_add_plain,
    norm_qkv_plain,
    norm_step_plain,
    norm_widen_plain,
    paged_attention_plain,
    residual_linear_plain,
)
from torch import Tensor

from cosyvoice_runtime.flow.kernels.convolutions import Activation, ConvWeights, causal_conv
from cosyvoice_runtime.flow.kernels.last_layer import norm_step
from cosyvoice_runtime.flow.kernels.layers import norm_mish_add, norm_widen, residual_linear
from cosyvoice_runtime.flow.kernels.paged_attention import norm_attention, paged_attention
from cosyvoice_runtime.flow.kernels.qkv import norm_qkv, packed_qkv
from cosyvoice_runtime.gpu.kernels.tiles import Tile
from small_places import STEPS, frames_of, kept, random_places, same, two

CHANNELS, HEADS, HEAD_DIM, PAGE = 32, 2, 16, 6
INNER = HEADS * HEAD_DIM
LAYER, STEP = 1, 1
FIRST = 2 * 2 * STEPS
"""Flattened pages from here on belong to utterances; those of the zero page and the waste page lie before."""

ONE_CHUNK = [([0], [6]), ([0], [2]), ([3], [6]), ([2, 0, 1], [4, 6, 2])]
CHUNKS = [*ONE_CHUNK, ([1, 0], [7, 18]), ([0, 2], [12, 13])]
EIGHT_BITS = pytest.mark.parametrize("eight_bits", [False, True], ids=["as they are", "in 8 bits"])
"""How keys and values are kept."""


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


def beside_others(rows: int, channels: int) -> Tensor:
    """Rows that are further apart than they are long."""
    return torch.randn(rows, 2 * channels)[:, :channels]


@EIGHT_BITS
@pytest.mark.parametrize("repeat", [1, 2])
@pytest.mark.parametrize(("before", "lengths"), CHUNKS)
def test_queries_keys_and_values(before, lengths, repeat, eight_bits):
    places, expected = two(random_places(before, lengths, eight_bits=eight_bits))
    x = beside_others(frames_of(places), CHANNELS)
    weight, bias = torch.randn(3 * INNER, CHANNELS), torch.randn(3 * INNER)
    queries = torch.full((2, len(x), INNER), torch.nan)
    norm_qkv(x, weight, bias, queries[0], places, LAYER, STEP, Tile(16, 16, repeat=repeat))
    norm_qkv_plain(x, weight, bias, queries[1], expected, LAYER, STEP)
    same(queries[0], queries[1])
    same(kept(places, FIRST), kept(expected, FIRST))


def test_packed_weights_hold_the_norm_and_the_softmax_scale():
    norm, linear = torch.nn.LayerNorm(CHANNELS), torch.nn.Linear(CHANNELS, 3 * INNER, bias=False)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(5, CHANNELS)
    weight, bias = packed_qkv(norm, linear, HEAD_DIM)
    packed = torch.nn.functional.layer_norm(x, (CHANNELS,)) @ weight.T + bias
    expected = linear(norm(x))
    same(packed[:, INNER:], expected[:, INNER:])
    same(packed[:, :INNER], expected[:, :INNER] / HEAD_DIM**0.5 / torch.log(torch.tensor(2.0)))


def joined(mixed: Tensor, weights: Tensor) -> Tensor:
    """What the parts of attention are together."""
    x = torch.zeros(mixed.shape[1], INNER)
    residual_linear_plain(mixed, weights, torch.eye(INNER), torch.zeros(INNER), x)
    return x


@EIGHT_BITS
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("before", "lengths"), CHUNKS)
def test_attention_over_pages(before, lengths, splits, eight_bits):
    places = random_places(before, lengths, eight_bits=eight_bits)
    queries = torch.randn(frames_of(places), INNER)
    mixed, weights = torch.zeros(splits, len(queries), INNER), torch.zeros(splits, len(queries), HEADS)
    paged_attention(queries, places, LAYER, STEP, mixed, weights, Tile(0, 0))
    expected = torch.empty_like(mixed[:1]), torch.empty_like(weights[:1])
    paged_attention_plain(queries, places, LAYER, STEP, *expected)
    same(joined(mixed, weights), expected[0][0])


@EIGHT_BITS
def test_attention_sees_neither_unused_pages_nor_frames_past_the_end(eight_bits):
    places = random_places([2, 0], [6, 3], eight_bits=eight_bits)
    queries = torch.randn(frames_of(places), INNER)
    mixed, weights = torch.zeros(2, 1, len(queries), INNER), torch.zeros(1, len(queries), HEADS)
    paged_attention(queries, places, LAYER, STEP, mixed[0], weights, Tile(0, 0))
    others, last = places.table[1::2, :2] + STEP, places.table[1::2, 2] + STEP
    large = 100 if eight_bits else 1e4
    places.pages[others] = large
    places.pages[last, :, 3:] = large
    if places.scales is not None:
        places.scales[others] = 100
        places.scales[last, ..., 3:] = 100
    paged_attention(queries, places, LAYER, STEP, mixed[1], weights, Tile(0, 0))
    assert torch.equal(mixed[0], mixed[1])


@pytest.mark.parametrize("tile", [Tile(0, 16), Tile(0, 32), Tile(0, 64, stages=2)])
@pytest.mark.parametrize("splits", [1, 2])
@EIGHT_BITS
@pytest.mark.parametrize(("before", "lengths"), ONE_CHUNK)
def test_attention_of_one_chunk_from_its_input(before, lengths, splits, tile, eight_bits):
    places, expected = two(random_places(before, lengths, eight_bits=eight_bits))
    x = beside_others(frames_of(places), CHANNELS)
    weight, bias = torch.randn(3 * INNER, CHANNELS) / 8, torch.randn(3 * INNER)
    mixed, weights = torch.zeros(splits, len(x), INNER), torch.zeros(splits, len(x), HEADS)
    norm_attention(x, weight, bias, places, LAYER, STEP, mixed, weights, tile)
    whole = torch.empty_like(mixed[:1]), torch.empty_like(weights[:1])
    norm_attention_plain(x, weight, bias, expected, LAYER, STEP, *whole)
    same(joined(mixed, weights), whole[0][0])
    same(kept(places, FIRST), kept(expected, FIRST))


@pytest.mark.parametrize("tile", [Tile(16, 16), Tile(16, 16, 16), Tile(32, 32, 16)])
@pytest.mark.parametrize("parts", [1, 3])
def test_linear_on_the_residual(tile, parts):
    rows = 21
    hidden, weights = torch.randn(parts, rows, INNER), torch.randn(parts, rows, HEADS)
    if parts > 1:
        weights[1, ::2] = -torch.inf  # a part without keys
    weight, bias = torch.randn(CHANNELS, INNER), torch.randn(CHANNELS)
    x = beside_others(rows, CHANNELS)
    expected = x.clone()
    residual_linear(hidden, weights, weight, bias, x, tile)
    residual_linear_plain(hidden, weights, weight, bias, expected)
    same(x, expected)


@pytest.mark.parametrize("repeat", [1, 2])
def test_norm_and_first_layer_of_the_feed_forward(repeat):
    x = beside_others(21, CHANNELS)
    weight, bias = torch.randn(64, CHANNELS), torch.randn(64)
    hidden = torch.full((2, len(x), 64), torch.nan)
    norm_widen(x, weight, bias, hidden[0], Tile(16, 32, repeat=repeat))
    norm_widen_plain(x, weight, bias, hidden[1])
    same(hidden[0], hidden[1])


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("channels", [32, 40])
@pytest.mark.parametrize(("before", "lengths"), CHUNKS)
def test_convolution(before, lengths, channels, active):
    if active and channels & (channels - 1):
        pytest.skip("only a power of two of channels is normed")
    offset = 7
    places, expected = two(random_places(before, lengths, tail_size=offset + 2 * channels + 3))
    x = beside_others(frames_of(places), channels)
    weights = ConvWeights(torch.randn(CHANNELS, 3 * channels) / 8, torch.randn(CHANNELS), offset)
    activation = Activation(*torch.randn(3, channels)) if active else None
    out = torch.full((2, len(x), CHANNELS), torch.nan)
    causal_conv(x, weights, places, STEP, out[0], Tile(16, 16), activation)
    causal_conv_plain(x, weights, expected, STEP, out[1], activation)
    same(out[0], out[1])
    same(places.new_tails, expected.new_tails)


def test_end_of_a_residual_block():
    x, shortcut = beside_others(21, CHANNELS), beside_others(21, CHANNELS)
    x[3] *= 100  # Mish of large values
    scale, shift = torch.randn(2, CHANNELS)
    out = torch.full((2, 21, CHANNELS), torch.nan)
    norm_mish_add(x, scale * 30, shift, shortcut, out[0], Tile(4, 0))
    norm_mish_add_plain(x, scale * 30, shift, shortcut, out[1])
    same(out[0], out[1])


@solver_steps.KINDS
def test_last_layers_guidance_and_step(rate, slope):
    step, bins = solver_steps.random_step(21, 20, rate, slope), 20
    hidden, weight, bias = (
        torch.randn(len(step.packed), CHANNELS),
        torch.randn(bins, CHANNELS),
        torch.randn(bins),
    )
    expected = copy.deepcopy(step)
    common = hidden, *torch.randn(2, CHANNELS), weight, bias
    norm_step(*common, step, Tile(16, 0))
    norm_step_plain(*common, expected)
    solver_steps.check(step, expected, same)
