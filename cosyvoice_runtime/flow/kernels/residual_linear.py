"""A linear layer added to the residual, of attention parts that it joins or of a widened hidden state.

A gate, if there is one, multiplies each channel of what is added.
"""

from __future__ import annotations

from math import gcd

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    fetch_ahead,
    let_next_start,
    linear_sums,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.gpu.kernels.tiles import Tile


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
