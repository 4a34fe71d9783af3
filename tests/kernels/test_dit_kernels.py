"""Each kernel of CosyVoice3's estimator alone against its plain twin, and what they are given."""

from __future__ import annotations

import copy

import pytest
import solver_steps
import torch
from plain_kernels import (
    dense_plain,
    grouped_conv_plain,
    linear_step_plain,
    modulated_norm_plain,
    residual_linear_plain,
    turned_qkv_plain,
)
from torch import nn

from cosyvoice_runtime.flow.kernels.convolutions import LEAST_SPAN, GroupedConvWeights, grouped_conv
from cosyvoice_runtime.flow.kernels.fused_dit import modulations
from cosyvoice_runtime.flow.kernels.last_layer import linear_step
from cosyvoice_runtime.flow.kernels.layers import dense, modulated_norm, residual_linear
from cosyvoice_runtime.flow.kernels.qkv import turned_qkv
from cosyvoice_runtime.flow.torch.dit import Rotation
from cosyvoice_runtime.gpu.kernels.tiles import Tile
from small_places import STEPS, frames_of, random_places, same, two

CHANNELS, HEADS, HEAD_DIM, PAGE = 32, 4, 16, 6
INNER = HEADS * HEAD_DIM
LAYER, STEP = 1, 1
FIRST = 2 * 2 * STEPS
"""Flattened pages from here on belong to utterances; those of the zero page and the waste page lie before."""
TAPS, OFFSET = 9, 5
"""Of a convolution that looks back further than a page, and where its tail begins."""
ROWS = 21

CHUNKS = [
    ([0], [6]), ([0], [2]), ([3], [6]), ([2, 0, 1], [4, 6, 2]), ([1, 0], [7, 18]), ([0, 2], [12, 13]),
]  # fmt: skip
CALLS = pytest.mark.parametrize(("before", "lengths"), CHUNKS)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


def rotation(frames: int) -> Rotation:
    return Rotation.of(torch.arange(frames)[None], HEAD_DIM)


@pytest.mark.parametrize("rows", [1, 4])
def test_norm(rows):
    x, (gain, shift) = torch.randn(ROWS, CHANNELS), torch.randn(2, CHANNELS)
    out = torch.full((2, ROWS, CHANNELS), torch.nan)
    modulated_norm(x, gain, shift, out[0], Tile(rows, 0))
    modulated_norm_plain(x, gain, shift, out[1])
    same(out[0], out[1])


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("tile", [Tile(16, 32, 64), Tile(32, 64, 16)])
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 96), (80, 32)])
def test_linear_layer(inputs, outputs, tile, active):
    x, weight, bias = torch.randn(ROWS, inputs), torch.randn(outputs, inputs) / 3, torch.randn(outputs)
    out = torch.full((2, ROWS, outputs), torch.nan)
    dense(x, weight, bias, out[0], tile, active)
    dense_plain(x, weight, bias, out[1], active)
    same(out[0], out[1])


def test_activation_of_large_values():
    x = torch.tensor([[-1e4, -30.0, -5.0, -1e-3, 0.0, 1e-3, 5.0, 30.0, 1e4] + [0.0] * 7] * 16)
    out = torch.full((2, 16, 16), torch.nan)
    dense(x, torch.eye(16), torch.zeros(16), out[0], Tile(16, 16, 16), active=True)
    dense_plain(x, torch.eye(16), torch.zeros(16), out[1], active=True)
    same(out[0], out[1])


@pytest.mark.parametrize("columns", [8, 16, 32])
@CALLS
def test_queries_keys_and_values(before, lengths, columns):
    """Of tiles smaller than a head, as large, and larger."""
    places, expected = two(random_places(before, lengths, heads=HEADS, head_dim=HEAD_DIM))
    x = torch.randn(frames_of(places), CHANNELS)
    weight, bias = torch.randn(3 * INNER, CHANNELS), torch.randn(3 * INNER)
    queries = torch.full((2, len(x), INNER), torch.nan)
    common = LAYER, STEP
    turned_qkv(x, weight, bias, rotation(40), queries[0], places, *common, Tile(16, columns, 16))
    turned_qkv_plain(x, weight, bias, rotation(40), queries[1], expected, *common)
    same(queries[0], queries[1])
    same(places.pages[FIRST:], expected.pages[FIRST:])


def test_only_the_first_heads_queries_and_keys_depend_on_the_place():
    """The same frames behind three pages and behind none."""
    places = random_places([3, 0], [6, 6], heads=HEADS, head_dim=HEAD_DIM)
    x = torch.randn(1, 6, CHANNELS).expand(4, -1, -1).reshape(-1, CHANNELS)
    weight, bias = torch.randn(3 * INNER, CHANNELS), torch.randn(3 * INNER)
    queries = torch.full((len(x), INNER), torch.nan)
    turned_qkv(x, weight, bias, rotation(40), queries, places, LAYER, STEP, Tile(16, 16, 16))
    later, first = queries.view(4, 6, INNER)[:2]
    assert torch.equal(later[:, HEAD_DIM:], first[:, HEAD_DIM:])
    assert not torch.isclose(later[:, :HEAD_DIM], first[:, :HEAD_DIM]).all(dim=0).any()
    later, first = (places.pages[places.page[row, 0] + STEP, LAYER] for row in range(2))
    assert torch.equal(later[:, 1], first[:, 1])
    assert torch.equal(later[:, 0, 1:], first[:, 0, 1:])
    assert not torch.isclose(later[:, 0, 0], first[:, 0, 0]).all(dim=0).any()


def test_positions_end_with_the_table():
    """Frames of padding can lie beyond the longest utterance."""
    places = random_places([3], [6], heads=HEADS, head_dim=HEAD_DIM)
    x = torch.randn(frames_of(places), CHANNELS)
    queries = torch.full((2, len(x), INNER), torch.nan)
    weight, bias = torch.randn(3 * INNER, CHANNELS), torch.randn(3 * INNER)
    turned_qkv(x, weight, bias, rotation(20), queries[0], places, LAYER, STEP, Tile(16, 16, 16))
    turned_qkv_plain(x, weight, bias, rotation(20), queries[1], places, LAYER, STEP)
    same(queries[0], queries[1])


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 8])
@CALLS
def test_convolution(before, lengths, groups, added):
    places, expected = two(random_places(before, lengths, tail_size=OFFSET + (TAPS - 1) * CHANNELS + 3))
    conv = nn.Conv1d(CHANNELS, CHANNELS, TAPS, groups=groups).requires_grad_(False)
    weights = GroupedConvWeights.of(conv, OFFSET)
    x = torch.randn(frames_of(places), CHANNELS)
    out = torch.randn(1, len(x), CHANNELS).repeat(2, 1, 1)
    grouped_conv(x, weights, places, STEP, out[0], Tile(16, 0), added)
    grouped_conv_plain(x, weights, expected, STEP, out[1], added)
    same(out[0], out[1])
    same(places.new_tails, expected.new_tails)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_weights_of_the_convolution_are_the_networks(groups):
    conv = nn.Conv1d(CHANNELS, CHANNELS, TAPS, groups=groups).requires_grad_(False)
    weights = GroupedConvWeights.of(conv, 0)
    assert weights.weight.shape[2] == max(LEAST_SPAN, CHANNELS // groups)
    places = random_places([0], [6], tail_size=(TAPS - 1) * CHANNELS)
    x, out = torch.randn(2, 6, CHANNELS), torch.zeros(12, CHANNELS)
    grouped_conv_plain(x.flatten(0, 1), weights, places, STEP, out)
    before = places.tails[:, STEP].view(2, TAPS - 1, CHANNELS)
    expected = nn.functional.mish(conv(torch.cat([before, x], dim=1).transpose(1, 2))).transpose(1, 2)
    same(out, expected.flatten(0, 1))


@pytest.mark.parametrize("parts", [1, 3])
def test_gated_layer_on_the_residual(parts):
    hidden, weights = torch.randn(parts, ROWS, INNER), torch.randn(parts, ROWS, HEADS)
    weight, bias, gate = torch.randn(CHANNELS, INNER), torch.randn(CHANNELS), torch.randn(CHANNELS)
    x = torch.randn(ROWS, CHANNELS)
    expected = x.clone()
    residual_linear(hidden, weights, weight, bias, x, Tile(16, 16, 16), gate=gate)
    residual_linear_plain(hidden, weights, weight, bias, expected, gate)
    same(x, expected)


@solver_steps.KINDS
def test_last_layer_guidance_and_step(rate, slope):
    step, bins = solver_steps.random_step(ROWS, 20, rate, slope), 20
    hidden, weight, bias = (
        torch.randn(len(step.packed), CHANNELS),
        torch.randn(bins, CHANNELS),
        torch.randn(bins),
    )
    expected = copy.deepcopy(step)
    linear_step(hidden, weight, bias, step, Tile(16, 16, 16))
    linear_step_plain(hidden, weight, bias, expected)
    solver_steps.check(step, expected, same)


def test_modulations_of_blocks_in_the_order_of_use():
    biases = torch.arange(14.0)[:, None, None].expand(-1, 3, CHANNELS)
    blocks = list(modulations(biases))
    firsts = [
        [float(x[0, 0]) for x in (part.gain, part.shift, part.gate)] for pair in blocks for part in pair
    ]
    assert firsts == [[2, 0, 2], [5, 3, 5], [8, 6, 8], [11, 9, 11]]
