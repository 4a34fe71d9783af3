"""Norms and linear layers of the flow's estimators, each with what stands next to it."""

from __future__ import annotations

from math import gcd

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.torch.dit import NORM_EPS
from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    fetch_ahead,
    gelu,
    gelu_by_tanh,
    let_next_start,
    linear_sums,
    mish,
    normalise,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.gpu.kernels.tiles import Tile

NORM_EPSILON = 1e-5
"""Epsilon of the LayerNorms of CosyVoice2's estimator, as torch has it."""


@launched
@triton.jit(do_not_specialize=["rows"])
def _norm_mish_add(
    x, scale, shift, shortcut, out, rows, x_stride, shortcut_stride, out_stride,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    m = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    c = tl.arange(0, CHANNELS)[None, :]
    gain = tl.load(scale + c)
    offset = tl.load(shift + c)
    wait_for_previous(CHAINED)
    inside = m < rows
    y = tl.load(x + m * x_stride + c, mask=inside, other=0.0)
    old = tl.load(shortcut + m * shortcut_stride + c, mask=inside, other=0.0)
    y = mish(normalise(y, CHANNELS, EPS) * gain + offset) + old
    let_next_start(CHAINED)
    tl.store(out + m * out_stride + c, y.to(out.dtype.element_ty), mask=inside)


def norm_mish_add(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    shortcut: Tensor,
    out: Tensor,
    tile: Tile,
    chained: int = NOT_CHAINED,
) -> None:
    """``out = mish(norm(x)) + shortcut``, ``[M, C]`` each, all but ``out`` float32; rows may be apart.

    Args:
        scale, shift: float32 ``[C]`` of the norm.
    """
    rows, channels = x.shape
    _norm_mish_add[(cdiv(rows, tile.rows),)](
        x, scale, shift, shortcut, out, rows, x.stride(0), shortcut.stride(0), out.stride(0),
        channels, NORM_EPSILON, tile.rows, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["rows"])
def _modulated_norm(
    x, gain, shift, out, rows,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, CHANNELS)
    g = tl.load(gain + c)[None, :]
    s = tl.load(shift + c)[None, :]
    wait_for_previous(CHAINED)
    inside = (m < rows)[:, None]
    place = m[:, None] * CHANNELS + c[None, :]
    y = normalise(tl.load(x + place, mask=inside, other=0.0), CHANNELS, EPS) * g + s
    let_next_start(CHAINED)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)


def modulated_norm(
    x: Tensor, gain: Tensor, shift: Tensor, out: Tensor, tile: Tile, chained: int = NOT_CHAINED
) -> None:
    """``out = norm(x) * gain + shift``, ``[M, C]`` each, ``x`` float32.

    Args:
        gain, shift: float32 ``[C]``.
    """
    rows, channels = x.shape
    _modulated_norm[(cdiv(rows, tile.rows),)](
        x, gain, shift, out, rows, channels, NORM_EPS, tile.rows, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["rows"])
def _norm_widen(
    x, weight, bias, hidden, rows, x_stride,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, EPS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, REPEAT: tl.constexpr, STAGES: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * (COLUMNS * REPEAT) + tl.arange(0, COLUMNS)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, CHANNELS)
    at = weight + n[None, :] * CHANNELS + c[:, None]
    if REPEAT == 1:
        w = tl.load(at)
    wait_for_previous(CHAINED)
    inside = m < rows
    old = tl.load(x + m[:, None] * x_stride + c[None, :], mask=inside[:, None], other=0.0)
    normed = normalise(old, CHANNELS, EPS).to(weight.dtype.element_ty)
    out = hidden + m[:, None] * WIDTH + n[None, :]
    if REPEAT == 1:
        wide = gelu(tl.dot(normed, w, input_precision="ieee") + tl.load(bias + n)[None, :])
        let_next_start(CHAINED)
        tl.store(out, wide.to(hidden.dtype.element_ty), mask=inside[:, None])
    else:
        for index in tl.range(0, REPEAT, num_stages=STAGES):
            w = tl.load(at + index * (COLUMNS * CHANNELS))
            wide = tl.dot(normed, w, input_precision="ieee") + tl.load(bias + index * COLUMNS + n)[None, :]
            tl.store(out + index * COLUMNS, gelu(wide).to(hidden.dtype.element_ty), mask=inside[:, None])
        let_next_start(CHAINED)


def norm_widen(
    x: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, tile: Tile, chained: int = NOT_CHAINED
) -> None:
    """``hidden = gelu(norm(x) @ weight.T + bias)``.

    Args:
        x: float32 ``[M, C]``; its rows may be further apart.
        weight, bias: ``[N, C]`` and float32 ``[N]``, with the norm's scale and shift in them.
        hidden: ``[M, N]``, written.
    """
    rows, channels = x.shape
    width = hidden.shape[1]
    columns = min(tile.columns, width)
    repeat = min(tile.repeat, width // columns)
    _norm_widen[(width // (columns * repeat), cdiv(rows, tile.rows))](
        x, weight, bias, hidden, rows, x.stride(0),
        channels, width, NORM_EPSILON, tile.rows, columns, repeat, tile.stages, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["rows"])
def _dense(
    hidden, weight, bias, out, rows,
    WIDTH: tl.constexpr, OUT: tl.constexpr, ACTIVE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
    AHEAD: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = m < rows
    b = tl.load(bias + n)
    fetch_ahead(weight, n, WIDTH, AHEAD, CHAINED)
    wait_for_previous(CHAINED)
    sums = linear_sums(hidden, weight, m, n, inside, WIDTH, ROWS, COLUMNS, DEPTH, STAGES) + b[None, :]
    if ACTIVE:
        sums = gelu_by_tanh(sums)
    let_next_start(CHAINED)
    tl.store(out + m[:, None] * OUT + n[None, :], sums.to(out.dtype.element_ty), mask=inside[:, None])


def dense(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    out: Tensor,
    tile: Tile,
    active: bool = False,
    chained: int = NOT_CHAINED,
) -> None:
    """``out = hidden @ weight.T + bias``.

    Args:
        hidden: ``[M, K]``; ``weight``: ``[N, K]``; ``bias``: float32 ``[N]``.
        out: ``[M, N]``, written.
        active: GELU, approximated by tanh, follows.
    """
    rows, width = hidden.shape
    columns = gcd(tile.columns, len(weight))
    _dense[(len(weight) // columns, cdiv(rows, tile.rows))](
        hidden, weight, bias, out, rows,
        width, len(weight), active, tile.rows, columns, gcd(tile.depth, width), tile.stages,
        tile.ahead, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


@triton.jit
def joined_parts(
    hidden,
    weights,
    m,
    group,
    channels,
    inside,
    rows,
    WIDTH: tl.constexpr,
    GROUPS: tl.constexpr,
    PARTS: tl.constexpr,
):
    """The parts of one group's ``channels``, each by its weight."""
    peak = tl.load(weights + m * GROUPS + group, mask=inside, other=0.0)
    for part in tl.static_range(1, PARTS):
        peak = tl.maximum(peak, tl.load(weights + (part * rows + m) * GROUPS + group, mask=inside, other=0.0))
    total = tl.zeros_like(peak)
    sums = tl.zeros([m.shape[0], channels.shape[0]], tl.float32)
    for part in tl.static_range(PARTS):
        place = part * rows + m
        share = tl.exp2(tl.load(weights + place * GROUPS + group, mask=inside, other=0.0) - peak)
        at = hidden + place[:, None] * WIDTH + channels[None, :]
        sums += tl.load(at, mask=inside[:, None], other=0.0).to(tl.float32) * share[:, None]
        total += share
    return sums / total[:, None]


@launched
@triton.jit(do_not_specialize=["rows"])
def _residual_linear(
    hidden, weights, weight, bias, gate, x, rows, x_stride,
    WIDTH: tl.constexpr, GROUPS: tl.constexpr, PARTS: tl.constexpr, GATED: tl.constexpr, STAGES: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    AHEAD: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, DEPTH)
    inside = m < rows
    w = tl.load(weight + n[None, :] * WIDTH + k[:, None])
    b = tl.load(bias + n)
    if GATED:
        gain = tl.load(gate + n)
    fetch_ahead(weight, n, WIDTH, AHEAD, CHAINED)
    wait_for_previous(CHAINED)
    at = x + m[:, None] * x_stride + n[None, :]
    if DEPTH == WIDTH:
        old = tl.load(at, mask=inside[:, None], other=0.0)
        a = tl.load(hidden + m[:, None] * WIDTH + k[None, :], mask=inside[:, None], other=0.0)
        sums = tl.dot(a.to(w.dtype), w, input_precision="ieee")
    elif PARTS == 1:
        sums = linear_sums(hidden, weight, m, n, inside, WIDTH, ROWS, COLUMNS, DEPTH, STAGES)
        old = tl.load(at, mask=inside[:, None], other=0.0)
    else:
        sums = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in tl.range(0, WIDTH, DEPTH, num_stages=STAGES):
            w = tl.load(weight + n[None, :] * WIDTH + (start + k)[:, None])
            a = joined_parts(
                hidden, weights, m, start // DEPTH, start + k, inside, rows, WIDTH, GROUPS, PARTS
            )
            sums = tl.dot(a.to(w.dtype), w, sums, input_precision="ieee")
        old = tl.load(at, mask=inside[:, None], other=0.0)
    let_next_start(CHAINED)
    new = sums + b[None, :]
    if GATED:
        new *= gain[None, :]
    tl.store(at, old + new, mask=inside[:, None])


def residual_linear(
    hidden: Tensor,
    weights: Tensor,
    weight: Tensor,
    bias: Tensor,
    x: Tensor,
    tile: Tile,
    chained: int = NOT_CHAINED,
    gate: Tensor | None = None,
) -> None:
    """``x += gate * (joined hidden @ weight.T + bias)``.

    Args:
        hidden: ``[parts, M, K]``; ``weights``: float32 ``[parts, M, G]``, log2 of each part's weight for each
            of G groups of channels; not read where there is one part.
        weight, bias: ``[C, K]`` and float32 ``[C]``.
        x: float32 ``[M, C]``; its rows may be further apart.
        gate: float32 ``[C]``; None: ones.
    """
    parts, rows, width = hidden.shape
    depth = gcd(tile.depth, width) if parts == 1 else width // weights.shape[-1]
    columns = min(tile.columns, x.shape[1])
    grid = (x.shape[1] // columns, cdiv(rows, tile.rows))
    _residual_linear[grid](
        hidden, weights, weight, bias, bias if gate is None else gate, x, rows, x.stride(0),
        width, weights.shape[-1], parts, gate is not None, tile.stages,
        tile.rows, columns, depth, tile.ahead, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
