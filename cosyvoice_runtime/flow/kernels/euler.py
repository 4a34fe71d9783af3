"""The last layer of an estimator, classifier-free guidance and one Euler step."""

from __future__ import annotations

from math import gcd

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.kernels.layers import NORM_EPSILON
from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    let_next_start,
    mish,
    normalise,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched, next_power_of_2
from cosyvoice_runtime.gpu.kernels.tiles import Tile


@triton.jit
def take_step(mel, packed, velocity, dt, m, n, here, rows, packed_stride, BINS: tl.constexpr):
    """Frames ``m`` of the mel go on by ``dt``, and into the next step's input of both guidance rows."""
    at = mel + m[:, None] * BINS + n[None, :]
    new = tl.load(at, mask=here, other=0.0) + dt * velocity
    tl.store(at, new, mask=here)
    new = new.to(packed.dtype.element_ty)
    tl.store(packed + m[:, None] * packed_stride + n[None, :], new, mask=here)
    tl.store(packed + (rows + m)[:, None] * packed_stride + n[None, :], new, mask=here)


@launched
@triton.jit(do_not_specialize=["rows"])
def _guided_euler(
    hidden, scale, shift, weight, bias, size, mel, packed, rows, packed_stride, rate,
    CHANNELS: tl.constexpr, BINS: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.arange(0, COLUMNS)
    c = tl.arange(0, CHANNELS)
    known = n < BINS
    inside = (m < rows)[:, None]
    w = tl.load(weight + n[None, :] * CHANNELS + c[:, None], mask=known[None, :], other=0.0)
    b = tl.load(bias + n, mask=known, other=0.0)
    dt = tl.load(size)
    wait_for_previous(CHAINED)
    gain = tl.load(scale + c)[None, :]
    offset = tl.load(shift + c)[None, :]
    at = hidden + m[:, None] * CHANNELS + c[None, :]
    guided = tl.load(at, mask=inside, other=0.0)
    free = tl.load(at + rows * CHANNELS, mask=inside, other=0.0)
    guided = mish(normalise(guided, CHANNELS, EPS) * gain + offset)
    free = mish(normalise(free, CHANNELS, EPS) * gain + offset)
    both = ((1 + rate) * guided - rate * free).to(w.dtype)
    velocity = tl.dot(both, w, input_precision="ieee") + b[None, :]
    let_next_start(CHAINED)
    take_step(mel, packed, velocity, dt, m, n, inside & known[None, :], rows, packed_stride, BINS)


def guided_euler(
    hidden: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Tensor,
    bias: Tensor,
    size: Tensor,
    rate: float,
    mel: Tensor,
    packed: Tensor,
    tile: Tile,
    chained: int = NOT_CHAINED,
) -> None:
    """``mel += size * velocity``, velocity = (1 + rate) * conditioned - rate * unconditioned.

    Args:
        hidden: float32 ``[2 M, C]`` from the last convolution, frames with guidance and then those without.
        scale, shift: float32 ``[C]`` of its LayerNorm; Mish follows.
        weight, bias: ``[mel, C]`` and float32 ``[mel]`` of the last layer; linear, so guidance goes first.
        size: float32 ``[1]``.
        mel: float32 ``[M, mel]``, updated.
        packed: ``[2 M, C_in]``, the next step's input: its first channels become the new mel.
    """
    rows, bins = mel.shape
    _guided_euler[(cdiv(rows, tile.rows),)](
        hidden, scale, shift, weight, bias, size, mel, packed, rows, packed.stride(0), rate,
        hidden.shape[1], bins, NORM_EPSILON, tile.rows, next_power_of_2(bins), chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["rows"])
def _linear_euler(
    hidden, weight, bias, size, mel, packed, rows, packed_stride, rate,
    CHANNELS: tl.constexpr, BINS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    known = n < BINS
    inside = (m < rows)[:, None]
    b = tl.load(bias + n, mask=known, other=0.0)
    dt = tl.load(size)
    at = hidden + m[:, None] * CHANNELS + k[None, :]
    wait_for_previous(CHAINED)
    guided = tl.zeros([ROWS, COLUMNS], tl.float32)
    free = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in tl.range(0, CHANNELS, DEPTH, num_stages=STAGES):
        w = tl.load(weight + n[None, :] * CHANNELS + (start + k)[:, None], mask=known[None, :], other=0.0)
        a = tl.load(at + start, mask=inside, other=0.0)
        guided = tl.dot(a, w, guided, input_precision="ieee")
        a = tl.load(at + rows * CHANNELS + start, mask=inside, other=0.0)
        free = tl.dot(a, w, free, input_precision="ieee")
    velocity = (1 + rate) * guided - rate * free + b[None, :]
    let_next_start(CHAINED)
    take_step(mel, packed, velocity, dt, m, n, inside & known[None, :], rows, packed_stride, BINS)


def linear_euler(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    size: Tensor,
    rate: float,
    mel: Tensor,
    packed: Tensor,
    tile: Tile,
    chained: int = NOT_CHAINED,
) -> None:
    """``mel += size * velocity``, velocity = (1 + rate) * conditioned - rate * unconditioned.

    Args:
        hidden: ``[2 M, C]``, normed, frames with guidance and then those without.
        weight, bias: ``[mel, C]`` and float32 ``[mel]`` of the layer.
        size: float32 ``[1]``.
        mel: float32 ``[M, mel]``, updated.
        packed: ``[2 M, C_in]``, the next step's input: its first channels become the new mel.
    """
    rows, bins = mel.shape
    channels = hidden.shape[1]
    _linear_euler[(cdiv(rows, tile.rows), cdiv(bins, tile.columns))](
        hidden, weight, bias, size, mel, packed, rows, packed.stride(0), rate,
        channels, bins, tile.rows, tile.columns, gcd(tile.depth, channels), tile.stages, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
