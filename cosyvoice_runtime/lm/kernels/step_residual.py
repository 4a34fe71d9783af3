"""A linear layer added to the residual: of attention's parts, which it joins, or of a feed-forward."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    let_next_start,
    let_next_start_at_once,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched, next_power_of_2
from cosyvoice_runtime.lm.kernels.step_embed import SHRINK, Scaled, store_scaled
from cosyvoice_runtime.lm.kernels.step_rows import (
    CROWD,
    added_up,
    held,
    load_inputs,
    load_pieces,
    no_sums,
    one_of,
    product,
    streamed,
    with_row,
)
from cosyvoice_runtime.lm.kernels.step_tiles import StepTile


@triton.jit
def _joined(
    mixed, shares, s, inside, batch,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """``[GROUPS, S, D]``: the parts of every head, each by its share; a group is a head."""
    head = tl.arange(0, GROUPS)
    known = inside[None, :] & (head < HEADS)[:, None]
    at = shares + s[None, :] * HEADS + head[:, None]
    peak = tl.load(at, mask=known, other=0.0)
    for part in tl.static_range(1, PARTS):
        peak = tl.maximum(peak, tl.load(at + part * batch * HEADS, mask=known, other=0.0))
    total = tl.zeros_like(peak)
    first = load_inputs(mixed, s, inside, 0, WIDTH, PIECE, GROUPS).to(tl.float32)
    sums = tl.zeros_like(first)
    for part in tl.static_range(PARTS):
        share = tl.exp2(tl.load(at + part * batch * HEADS, mask=known, other=0.0) - peak)
        inputs = load_inputs(mixed + part * batch * WIDTH, s, inside, 0, WIDTH, PIECE, GROUPS)
        sums += inputs.to(tl.float32) * share[:, :, None]
        total += share
    return sums / total[:, :, None]


@triton.jit
def _joined_products(
    mixed, shares, row, s, inside, batch,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PIECE: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Products ``[S, N]`` of joined parts and one piece of the weight; of one sequence, or of a crowd."""
    a = _joined(mixed, shares, s, inside, batch, WIDTH, HEADS, PARTS, PIECE, GROUPS)
    sums = product(a.to(mixed.dtype.element_ty), row, no_sums(COLUMNS, ROWS, PIECE, GROUPS), COLUMNS)
    return added_up(sums, COLUMNS)


@triton.jit
def _joined_held(
    mixed, shares, row, s, inside, batch,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PIECE: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """The same for any number of sequences, as :func:`held`."""
    if COLUMNS == 1 or COLUMNS >= CROWD:
        found = _joined_products(
            mixed, shares, row, s, inside, batch, WIDTH, HEADS, PARTS, ROWS, COLUMNS, PIECE, GROUPS
        )
    else:
        found = tl.zeros([COLUMNS, ROWS], tl.float32)
        for column in tl.static_range(COLUMNS):
            one, there = one_of(s, inside, column, COLUMNS)
            each = _joined_products(
                mixed, shares, row, one, there, batch, WIDTH, HEADS, PARTS, ROWS, 1, PIECE, GROUPS
            )
            found = with_row(found, each, column, COLUMNS)
    return found


@launched
@triton.jit(do_not_specialize=["batch"])
def _step_residual(
    inputs, shares, weight, gain, x, scaled, squares, batch,
    WIDTH: tl.constexpr, CHANNELS: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
    AHEAD: tl.constexpr, STAGES: tl.constexpr, SHRINK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    s = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = s < batch
    if STAGES == 0:
        rows = load_pieces(weight, n, AHEAD, WIDTH, PIECE, GROUPS)
    g = tl.load(gain + n)
    wait_for_previous(CHAINED)
    old = tl.load(x + s[:, None] * CHANNELS + n[None, :], mask=inside[:, None], other=0.0)
    if STAGES:
        found = streamed(weight, n, inputs, s, batch, WIDTH, ROWS, COLUMNS, PIECE, STAGES)
    elif PARTS > 1:
        found = _joined_held(
            inputs, shares, rows[0], s, inside, batch,
            WIDTH, HEADS, PARTS, ROWS, COLUMNS, PIECE, GROUPS,
        )  # fmt: skip
    else:
        found = held(weight, n, rows, inputs, s, inside, WIDTH, ROWS, COLUMNS, PIECE, GROUPS, AHEAD)
    let_next_start(CHAINED)
    new = old + found / SHRINK
    PARTS_OUT: tl.constexpr = CHANNELS // ROWS
    store_scaled(new, g, s, inside, n, x, scaled, squares, tl.program_id(0), CHANNELS, PARTS_OUT, SHRINK)


def step_residual(
    inputs: Tensor,
    shares: Tensor,
    weight: Tensor,
    gain: Tensor,
    x: Tensor,
    scaled: Scaled,
    tile: StepTile,
    chained: int = NOT_CHAINED,
) -> None:
    """``x += joined inputs @ weight.T / SHRINK``.

    Args:
        inputs: ``[parts, S, K]``; ``shares``: float32 ``[parts, S, H]``, log2 of each part's share for each
            head; not read where there is one part.
        weight: ``[C, K]``.
        gain: float32 ``[C]`` of the norm that comes next.
        x, scaled: float32 ``[S, C]`` the residual, and itself for the norm; written. ``C / parts`` of
            ``scaled`` is the number of the tile's rows.
    """
    parts, batch, width = inputs.shape
    channels, heads = x.shape[1], shares.shape[-1]
    piece, groups = tile.piece, tile.groups
    if parts > 1:
        assert not tile.stages, "streamed inputs are of one part"
        groups = next_power_of_2(heads)
        piece = groups * (width // heads)
    ahead = min(tile.ahead, cdiv(width, piece))
    _step_residual[(channels // tile.rows, cdiv(batch, tile.columns))](
        inputs, shares, weight, gain, x, scaled.values, scaled.squares, batch,
        width, channels, heads, parts, tile.rows, tile.columns, piece, groups, ahead, tile.stages,
        SHRINK, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
