"""Causal convolutions of the flow's estimators: of three taps, and in groups of channels."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor, nn

from cosyvoice_runtime.flow.kernels.layers import NORM_EPSILON
from cosyvoice_runtime.flow.torch.call_pages import Places
from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    let_next_start,
    mish,
    normalise,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched, next_power_of_2
from cosyvoice_runtime.gpu.kernels.tiles import Tile

MOST_DEPTH = 256


@dataclass(frozen=True, eq=False)
class ConvWeights:
    """Weights of a causal convolution.

    Attributes:
        weight, bias: ``[N, taps * C_in]`` and float32 ``[N]``.
        tail: offset of its last input frames in the tails.
    """

    weight: Tensor
    bias: Tensor
    tail: int


@dataclass(frozen=True, eq=False)
class Activation:
    """LayerNorm over channels and Mish, and what is added after: float32 ``[C]`` each."""

    scale: Tensor
    shift: Tensor
    added: Tensor


@triton.jit
def _window(
    x, tails, tail, m, t, channel, inside, scale, shift, added, x_stride,
    BACK: tl.constexpr, IN: tl.constexpr, TAPS: tl.constexpr, EPS: tl.constexpr, ACTIVE: tl.constexpr,
):  # fmt: skip
    """Frames ``BACK`` before those of ``m``, some channels; of the tails where they lie before the input."""
    known = (channel < IN)[None, :]
    new = inside & (t >= BACK)
    a = tl.load(x + (m - BACK)[:, None] * x_stride + channel[None, :], mask=new[:, None] & known, other=0.0)
    if ACTIVE:
        a = normalise(a, IN, EPS) * tl.load(scale + channel)[None, :] + tl.load(shift + channel)[None, :]
        a = mish(a) + tl.load(added + channel)[None, :]
    a = a.to(tails.dtype.element_ty)
    if BACK > 0:
        old = (inside & (t < BACK))[:, None]
        place = tail + (t - BACK + TAPS - 1) * IN
        before = tl.load(tails + place[:, None] + channel[None, :], mask=old & known, other=0.0)
        a = tl.where(old, before, a)
    return a


@launched
@triton.jit(do_not_specialize=["rows", "frames", "utterances"])
def _causal_conv(
    x, tails, new_tails, weight, bias, scale, shift, added, out, lengths,
    rows, frames, utterances, x_stride, tail_stride, tail_start, out_stride,
    IN: tl.constexpr, TAPS: tl.constexpr, EPS: tl.constexpr, ACTIVE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    BLOCKS: tl.constexpr = (IN + DEPTH - 1) // DEPTH
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, DEPTH)
    inside = m < rows
    row = m // frames
    t = m % frames
    at = weight + n[None, :] * (TAPS * IN)
    w = tl.load(at + k[:, None], mask=(k < IN)[:, None], other=0.0)
    b = tl.load(bias + n)
    length = tl.load(lengths + row % utterances, mask=inside, other=0).to(tl.int32)
    tail = row * tail_stride + tail_start
    wait_for_previous(CHAINED)
    last = t - length + (TAPS - 1)
    kept = inside & (last >= 0) & (last < TAPS - 1) & (tl.program_id(0) == 0)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for index in tl.static_range(TAPS * BLOCKS):
        channel = (index % BLOCKS) * DEPTH + k
        following = w
        if index + 1 < TAPS * BLOCKS:  # the next weights are on their way while these are used
            next_channel = ((index + 1) % BLOCKS) * DEPTH + k
            from_tap = at + ((index + 1) // BLOCKS) * IN
            following = tl.load(
                from_tap + next_channel[:, None], mask=(next_channel < IN)[:, None], other=0.0
            )
        a = _window(
            x, tails, tail, m, t, channel, inside, scale, shift, added, x_stride,
            TAPS - 1 - index // BLOCKS, IN, TAPS, EPS, ACTIVE,
        )  # fmt: skip
        sums = tl.dot(a, w, sums, input_precision="ieee")
        if index // BLOCKS == TAPS - 1:
            place = new_tails + (tail + last * IN)[:, None] + channel[None, :]
            tl.store(place, a, mask=kept[:, None] & (channel < IN)[None, :])
        w = following
    let_next_start(CHAINED)
    sums += b[None, :]
    tl.store(out + m[:, None] * out_stride + n[None, :], sums.to(out.dtype.element_ty), mask=inside[:, None])


def causal_conv(
    x: Tensor,
    weights: ConvWeights,
    places: Places,
    step: int,
    out: Tensor,
    tile: Tile,
    activation: Activation | None = None,
    chained: int = NOT_CHAINED,
) -> None:
    """Convolve the frames of all rows.

    Args:
        x: ``[M, C_in]`` of all rows' frames; before a row's first frame lie its tails.
        out: ``[M, N]``, written, of other memory than ``x``.
        activation: of the input.
    """
    rows, channels = x.shape
    width = len(weights.weight)
    columns, depth = min(tile.columns, width), min(tile.depth or MOST_DEPTH, next_power_of_2(channels))
    _, steps, tail_size = places.tails.shape
    active = activation or Activation(weights.bias, weights.bias, weights.bias)
    _causal_conv[(width // columns, cdiv(rows, tile.rows))](
        x, places.tails, places.new_tails, weights.weight, weights.bias,
        active.scale, active.shift, active.added, out, places.lengths,
        rows, places.new_frames, len(places.lengths), x.stride(0), steps * tail_size,
        step * tail_size + weights.tail, out.stride(0),
        channels, weights.weight.shape[1] // channels, NORM_EPSILON, activation is not None,
        tile.rows, columns, depth, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


LEAST_SPAN = 16
"""Channels that a program computes at least: smaller groups go together, with zeros between them."""


@dataclass(frozen=True, eq=False)
class GroupedConvWeights:
    """Weights of a causal convolution in groups of channels.

    Attributes:
        weight: ``[spans, taps, S, S]``, inputs before outputs, of spans of S channels.
        bias: float32 ``[spans * S]``.
        tail: offset of its last input frames in the tails.
    """

    weight: Tensor
    bias: Tensor
    tail: int

    @classmethod
    def of(cls, conv: nn.Conv1d, tail: int) -> GroupedConvWeights:
        assert conv.bias is not None
        outputs, size, taps = conv.weight.shape
        together = max(1, min(LEAST_SPAN, outputs) // size)
        groups = conv.weight.detach().unflatten(0, (-1, together, size))  # [spans, together, out, in, taps]
        span = together * size
        weight = groups.new_zeros(outputs // span, taps, together, size, together, size)
        for group in range(together):
            weight[:, :, group, :, group] = groups[:, group].permute(0, 3, 2, 1)
        return cls(weight.view(-1, taps, span, span), conv.bias.float(), tail)


@launched
@triton.jit(do_not_specialize=["rows", "frames", "utterances"])
def _grouped_conv(
    x, tails, new_tails, weight, bias, out, lengths,
    rows, frames, utterances, tail_stride, tail_start,
    CHANNELS: tl.constexpr, SPAN: tl.constexpr, TAPS: tl.constexpr, ADDED: tl.constexpr,
    ROWS: tl.constexpr, STAGES: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    BEFORE: tl.constexpr = TAPS - 1
    group = tl.program_id(0)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, SPAN)
    channel = group * SPAN + i
    inside = m < rows
    row = m // frames
    t = m % frames
    at = weight + group * (TAPS * SPAN * SPAN) + i[:, None] * SPAN + i[None, :]
    b = tl.load(bias + channel)
    length = tl.load(lengths + row % utterances, mask=inside, other=0).to(tl.int32)
    tail = row * tail_stride + tail_start
    here = x + m[:, None] * CHANNELS + channel[None, :]
    earlier = (tails + tail[:, None]) + channel[None, :]
    kept = (new_tails + tail[:, None]) + channel[None, :]
    wait_for_previous(CHAINED)
    sums = tl.zeros([ROWS, SPAN], tl.float32)
    for tap in tl.range(0, TAPS, num_stages=STAGES):
        w = tl.load(at + tap * (SPAN * SPAN))
        source = t - BEFORE + tap  # the frame that this tap reads; negative in the tail
        new = tl.load(here + (tap - BEFORE) * CHANNELS, mask=(inside & (source >= 0))[:, None], other=0.0)
        old_at = earlier + ((source + BEFORE) * CHANNELS)[:, None]
        old = tl.load(old_at, mask=(inside & (source < 0))[:, None], other=0.0)
        sums = tl.dot(tl.where((source >= 0)[:, None], new.to(w.dtype), old), w, sums, input_precision="ieee")
    # The last frames stay for the next call; a call shorter than them keeps some of the tail.
    last = t - length + BEFORE
    ends = inside & (last >= 0) & (last < BEFORE)
    new = tl.load(here, mask=ends[:, None], other=0.0).to(tails.dtype.element_ty)
    tl.store(kept + (last * CHANNELS)[:, None], new, mask=ends[:, None])
    for lap in tl.range(0, tl.cdiv(BEFORE, frames)):
        place = t + lap * frames
        stays = inside & (place < BEFORE - length)
        old = tl.load(earlier + ((place + length) * CHANNELS)[:, None], mask=stays[:, None], other=0.0)
        tl.store(kept + (place * CHANNELS)[:, None], old, mask=stays[:, None])
    y = mish(sums + b[None, :])
    to = out + m[:, None] * CHANNELS + channel[None, :]
    if ADDED:
        y += tl.load(to, mask=inside[:, None], other=0.0)
    let_next_start(CHAINED)
    tl.store(to, y.to(out.dtype.element_ty), mask=inside[:, None])


def grouped_conv(
    x: Tensor,
    weights: GroupedConvWeights,
    places: Places,
    step: int,
    out: Tensor,
    tile: Tile,
    added: bool = False,
    chained: int = NOT_CHAINED,
) -> None:
    """Convolve the frames of all rows in groups of channels; Mish follows.

    Args:
        x: ``[M, C]`` of all rows' frames; before a row's first frame lie its tails.
        out: ``[M, C]``, written, of other memory than ``x``.
        added: to what ``out`` holds.
    """
    rows, channels = x.shape
    spans, taps, span, _ = weights.weight.shape
    _, steps, tail_size = places.tails.shape
    _grouped_conv[(spans, cdiv(rows, tile.rows))](
        x, places.tails, places.new_tails, weights.weight, weights.bias, out, places.lengths,
        rows, places.new_frames, len(places.lengths), steps * tail_size, step * tail_size + weights.tail,
        channels, span, taps, added, tile.rows, tile.stages, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
