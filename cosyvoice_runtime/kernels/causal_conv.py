"""Causal convolution, with the norm, the activation and the additions of a residual block around it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.kernels.arithmetic import let_next_start, mish, normalise, wait_for_previous
from cosyvoice_runtime.kernels.places import Places
from cosyvoice_runtime.kernels.tiles import Tile

EPSILON = 1e-5


@dataclass(frozen=True, eq=False)
class ConvWeights:
    """
    Attributes:
        weight, bias: ``[C, taps * C_in]`` and float32 ``[C]``.
        tail: offset of its last input frames in the tails.
        scale, shift: float32 ``[C]`` of the LayerNorm before Mish; None where there is neither.
        shortcut, shortcut_bias: ``[C, C_short]`` and float32 ``[C]`` of the linear shortcut, if there is one.
    """

    weight: Tensor
    bias: Tensor
    tail: int
    scale: Tensor | None = None
    shift: Tensor | None = None
    shortcut: Tensor | None = None
    shortcut_bias: Tensor | None = None


@triton.jit(do_not_specialize=["rows", "frames", "utterances"])
def _causal_conv(
    x, tails, new_tails, weight, bias, scale, shift, added, source, shortcut, shortcut_bias, out, lengths,
    rows, frames, utterances, x_stride, tail_stride, tail_start, source_stride, out_stride,
    CHANNELS: tl.constexpr, IN: tl.constexpr, SHORT: tl.constexpr, TAPS: tl.constexpr, EPS: tl.constexpr,
    NORM: tl.constexpr, ADDED: tl.constexpr, STAGES: tl.constexpr,
    ROWS: tl.constexpr, DEPTH: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, CHANNELS)
    k = tl.arange(0, DEPTH)
    inside = m < rows
    row = m // frames
    t = m % frames
    length = tl.load(lengths + row % utterances, mask=inside, other=0).to(tl.int32)
    tail = row * tail_stride + tail_start
    wait_for_previous(CHAINED)
    sums = tl.zeros([ROWS, CHANNELS], tl.float32)
    for start in tl.range(0, TAPS * IN, DEPTH, num_stages=STAGES):
        back = start // IN - (TAPS - 1)
        channel = start % IN + k
        new = inside & (t + back >= 0)
        old = inside & (t + back < 0)
        a = tl.load(x + (m + back)[:, None] * x_stride + channel[None, :], mask=new[:, None], other=0.0)
        place = tail + (t + back + TAPS - 1) * IN
        before = tl.load(tails + place[:, None] + channel[None, :], mask=old[:, None], other=0.0)
        w = tl.load(weight + c[None, :] * (TAPS * IN) + (start + k)[:, None])
        a = tl.where(old[:, None], before, a.to(w.dtype))
        sums = tl.dot(a, w, sums, input_precision="ieee")
    result = sums + tl.load(bias + c)[None, :]
    if NORM:
        result = normalise(result, CHANNELS, EPS)
        result = mish(result * tl.load(scale + c)[None, :] + tl.load(shift + c)[None, :])
    if ADDED:
        result += tl.load(added + c)[None, :].to(tl.float32)
    if SHORT > 0:
        for start in tl.range(0, SHORT, DEPTH, num_stages=STAGES):
            at = source + m[:, None] * source_stride + (start + k)[None, :]
            a = tl.load(at, mask=inside[:, None], other=0.0)
            w = tl.load(shortcut + c[None, :] * SHORT + (start + k)[:, None])
            result = tl.dot(a.to(w.dtype), w, result, input_precision="ieee")
        result += tl.load(shortcut_bias + c)[None, :]
    let_next_start(CHAINED)
    tl.store(
        out + m[:, None] * out_stride + c[None, :], result.to(out.dtype.element_ty), mask=inside[:, None]
    )
    last = t - length + (TAPS - 1)
    kept = inside & (last >= 0) & (last < TAPS - 1)
    for start in range(0, IN, DEPTH):
        a = tl.load(x + m[:, None] * x_stride + (start + k)[None, :], mask=kept[:, None], other=0.0)
        at = (tail + last * IN)[:, None] + (start + k)[None, :]
        tl.store(new_tails + at, a.to(new_tails.dtype.element_ty), mask=kept[:, None])


def causal_conv(
    x: Tensor,
    weights: ConvWeights,
    places: Places,
    step: int,
    out: Tensor,
    tile: Tile,
    added: Tensor | None = None,
    source: Tensor | None = None,
    chained: bool = False,
) -> None:
    """``out = activated convolution of x, + added, + shortcut of source``.

    Args:
        x: ``[M, C_in]`` of all rows' frames; before a row's first frame lie its tails.
        out: ``[M, C]``, written; it may be ``source`` but not ``x``.
        added: ``[C]`` to add to every frame.
        source: ``[M, C_short]`` for the shortcut.
    """
    rows, channels_in = x.shape
    channels, depth = len(weights.weight), min(tile.depth, channels_in & -channels_in)
    taps = weights.weight.shape[1] // channels_in
    short = 0 if source is None else source.shape[1]
    if short:
        depth = min(depth, short & -short)
    _, steps, tail_size = places.tails.shape
    nothing = weights.bias
    _causal_conv[(triton.cdiv(rows, tile.rows),)](
        x, places.tails, places.new_tails, weights.weight, weights.bias,
        nothing if weights.scale is None else weights.scale,
        nothing if weights.shift is None else weights.shift,
        nothing if added is None else added,
        x if source is None else source,
        nothing if weights.shortcut is None else weights.shortcut,
        nothing if weights.shortcut_bias is None else weights.shortcut_bias,
        out, places.lengths, rows, places.new_frames, len(places.lengths),
        x.stride(0), steps * tail_size, step * tail_size + weights.tail,
        x.stride(0) if source is None else source.stride(0), out.stride(0),
        channels, channels_in, short, taps, EPSILON, weights.scale is not None, added is not None, tile.stages,
        tile.rows, depth, chained,
        num_warps=tile.warps, launch_pdl=chained,
    )  # fmt: skip


def causal_conv_plain(
    x: Tensor,
    weights: ConvWeights,
    places: Places,
    step: int,
    out: Tensor,
    added: Tensor | None = None,
    source: Tensor | None = None,
) -> None:
    """As :func:`causal_conv`."""
    width = x.shape[1]
    taps = weights.weight.shape[1] // width
    at = slice(weights.tail, weights.tail + (taps - 1) * width)
    before = places.tails[:, step, at].unflatten(1, (taps - 1, width))
    extended = torch.cat([before.float(), x.float().view(places.rows, places.new_frames, width)], dim=1)
    windows = extended.unfold(1, taps, 1).transpose(2, 3).flatten(2)
    result = F.linear(windows, weights.weight.float(), weights.bias).flatten(0, 1)
    if weights.scale is not None:
        result = F.mish(F.layer_norm(result, result.shape[1:], weights.scale, weights.shift, EPSILON))
    if added is not None:
        result = result + added.float()
    if source is not None and weights.shortcut is not None:
        result = result + F.linear(source.float(), weights.shortcut.float(), weights.shortcut_bias)
    for row in range(places.rows):
        length = places.lengths[row % len(places.lengths)]
        kept = extended[row, length : length + taps - 1].flatten()
        places.new_tails[row, step, at] = kept.to(places.new_tails.dtype)
    out.copy_(result)
