"""The residual of a step: its first embedding, and the linear layers that are added to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
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
from cosyvoice_runtime.gpu.kernels.step_tiles import StepTile
from cosyvoice_runtime.lm.kernels.step_rows import (
    TENSOR_CORES_FROM,
    added_up,
    held,
    load_added,
    load_inputs,
    load_pieces,
    no_sums,
    one_of,
    product,
    streamed,
    with_row,
)

SHRINK = 2.0**-6
"""Activations between kernels are multiplied by this, so that float16 has room for outliers of some millions.
Its ten binary digits lose an eighth of what bfloat16 would."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """A residual during an RMSNorm, whose divisor is known only when all of it is there.

    Attributes:
        values: ``[S, C]`` the residual times the norm's weight and `SHRINK`.
        squares: float32 ``[S, parts]`` sums of squares of the residual, each over ``C / parts`` channels.
    """

    values: Tensor
    squares: Tensor

    @classmethod
    def empty(cls, residual: Tensor, dtype: torch.dtype, part: int) -> Scaled:
        """Memory for a residual ``[S, C]`` in groups of so many channels."""
        batch, channels = residual.shape
        return cls(torch.empty_like(residual, dtype=dtype), residual.new_empty(batch, channels // part))


@triton.jit
def store_scaled(
    new, gain, s, inside, n, x, scaled, squares, part,
    CHANNELS: tl.constexpr, PARTS: tl.constexpr, SHRINK: tl.constexpr,
):  # fmt: skip
    """Store some channels ``n`` of the residual and, for the norm that comes next, of `Scaled`."""
    at = s[:, None] * CHANNELS + n[None, :]
    tl.store(x + at, new, mask=inside[:, None])
    tl.store(scaled + at, (new * (gain * SHRINK)[None, :]).to(scaled.dtype.element_ty), mask=inside[:, None])
    tl.store(squares + s * PARTS + part, tl.sum(new * new, axis=1), mask=inside)


@launched
@triton.jit(do_not_specialize=["batch"])
def _step_embed(
    tokens, table, gain, x, scaled, squares, batch,
    CHANNELS: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr,
    SHRINK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    part = tl.program_id(0)
    n = part * ROWS + tl.arange(0, ROWS)
    s = tl.program_id(1) + tl.arange(0, 1)
    inside = s < batch
    token = tl.load(tokens + s)
    row = tl.load(table + token[:, None] * CHANNELS + n[None, :]).to(tl.float32)
    let_next_start(CHAINED)
    store_scaled(row, tl.load(gain + n), s, inside, n, x, scaled, squares, part, CHANNELS, PARTS, SHRINK)


def step_embed(
    tokens: Tensor, table: Tensor, gain: Tensor, x: Tensor, scaled: Scaled, chained: int = NOT_CHAINED
) -> None:
    """Embed the tokens. This first kernel starts after all earlier work: later ones read the step's inputs at
    once.

    Args:
        tokens: ``[S]`` int64; table: ``[V, C]``.
        gain: float32 ``[C]`` of the next norm.
        x, scaled: float32 ``[S, C]`` the residual, and itself for the norm; written.
    """
    batch, channels = x.shape
    parts = scaled.squares.shape[1]
    _step_embed[(parts, batch)](
        tokens, table, gain, x, scaled.values, scaled.squares, batch,
        channels, parts, channels // parts, SHRINK, chained, num_warps=1,
    )  # fmt: skip


@triton.jit
def _joined(
    mixed, shares, s, inside, batch,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """``[GROUPS, S, D]``: the splits of every head, each by its share; a group is a head."""
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
    """Products ``[S, N]`` of joined splits and one piece of the weight, for one sequence or many."""
    a = _joined(mixed, shares, s, inside, batch, WIDTH, HEADS, PARTS, PIECE, GROUPS)
    sums = product(a.to(mixed.dtype.element_ty), row, no_sums(COLUMNS, ROWS, PIECE, GROUPS), COLUMNS)
    return added_up(sums, COLUMNS)


@triton.jit
def _joined_held(
    mixed, shares, row, s, inside, batch,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PIECE: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Joined products for any number of sequences, as :func:`held`."""
    if COLUMNS == 1 or COLUMNS >= TENSOR_CORES_FROM:
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
    inputs, shares, weight, gain, x, scaled, squares, added, batch,
    WIDTH: tl.constexpr, CHANNELS: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
    AHEAD: tl.constexpr, STAGES: tl.constexpr, SHRINK: tl.constexpr, ADAPTED: tl.constexpr,
    CHAINED: tl.constexpr,
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
    if ADAPTED:
        found += load_added(added, s, n, inside, CHANNELS)
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
    added: Tensor | None = None,
) -> None:
    """``x += joined inputs @ weight.T / SHRINK``.

    Args:
        inputs: ``[splits, S, K]``.
        shares: float32 ``[splits, S, H]``, log2 of each split's share; not read where there is one split.
        weight: ``[C, K]``.
        gain: float32 ``[C]`` of the norm that comes next.
        x, scaled: float32 ``[S, C]`` the residual, and itself for the norm; written. ``C / parts`` of
            ``scaled`` is the number of the tile's rows.
        added: float32 ``[S, C]``, what adapters add to the products.
    """
    parts, batch, width = inputs.shape
    channels, heads = x.shape[1], shares.shape[-1]
    piece, groups = tile.piece, tile.groups
    if parts > 1:
        assert not tile.stages, "streamed inputs have one split"
        groups = next_power_of_2(heads)
        piece = groups * (width // heads)
    ahead = min(tile.ahead, cdiv(width, piece))
    _step_residual[(channels // tile.rows, cdiv(batch, tile.columns))](
        inputs, shares, weight, gain, x, scaled.values, scaled.squares, x if added is None else added, batch,
        width, channels, heads, parts, tile.rows, tile.columns, piece, groups, ahead, tile.stages,
        SHRINK, added is not None, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
