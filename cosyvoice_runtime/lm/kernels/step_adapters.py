"""The adapters' share of a linear layer in a step: inputs times ``down``, then times ``up``.

A program takes all sequences of a block that have the adapter of its own one, and is idle unless its own is
the first of them. So the matrices of an adapter are read once for a block, and launches depend neither on
the adapters nor on who has them.

S: sequences, N: adapters, R: their rank, K: width of the inputs.
"""

from __future__ import annotations

import math

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
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.lm.torch.adapters import AdapterStack

FEW, MANY = 16, 32
"""Sequences of a block: tensor cores multiply 16 at least."""
RANKS = 16
"""Rows of ``down`` that a program multiplies."""
PIECE, SHARE = 256, 1024
"""Inputs that a program multiplies at a time, and in all."""
OUTPUTS = 4
"""Outputs that a program adds up, for each sequence of its block."""
WARPS = 4


@triton.jit
def _block(numbers, slot, batch, COLUMNS: tl.constexpr):
    """The sequences of a slot's block, which of them have its adapter, the adapter, and whether the slot is
    the first of them."""
    s = slot // COLUMNS * COLUMNS + tl.arange(0, COLUMNS)
    inside = s < batch
    own = tl.load(numbers + slot)
    alike = inside & (tl.load(numbers + s, mask=inside, other=0) == own)
    return s, alike, own, tl.min(tl.where(alike, s, batch), axis=0) == slot


@triton.jit
def _one_head(
    inputs, shares, s, k, alike, batch, WIDTH: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr
):
    """Inputs ``[S, K]`` of one head, each part by its share."""
    of_head = shares + s * HEADS + tl.min(k, axis=0) // (WIDTH // HEADS)
    peak = tl.load(of_head, mask=alike, other=0.0)
    for part in tl.static_range(1, PARTS):
        peak = tl.maximum(peak, tl.load(of_head + part * batch * HEADS, mask=alike, other=0.0))
    total = tl.zeros_like(peak)
    sums = s[:, None] * 0.0 + k[None, :] * 0.0
    for part in tl.static_range(PARTS):
        share = tl.exp2(tl.load(of_head + part * batch * HEADS, mask=alike, other=0.0) - peak)
        at = inputs + (part * batch + s)[:, None] * WIDTH + k[None, :]
        sums += tl.load(at, mask=alike[:, None], other=0.0).to(tl.float32) * share[:, None]
        total += share
    return (sums / total[:, None]).to(inputs.dtype.element_ty)


@launched
@triton.jit(do_not_specialize=["batch"])
def _adapters_down(
    inputs, shares, numbers, down, narrow, batch,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr, ALL_RANKS: tl.constexpr,
    COLUMNS: tl.constexpr, RANKS: tl.constexpr, PIECE: tl.constexpr, SHARE: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    s, alike, own, first = _block(numbers, tl.program_id(1), batch, COLUMNS)
    r = tl.program_id(0) * RANKS + tl.arange(0, RANKS)
    share = tl.program_id(2)
    wait_for_previous(CHAINED)
    if first & (own > 0):
        rows = down + (own.to(tl.int64) * ALL_RANKS + r) * WIDTH
        sums = tl.zeros([COLUMNS, RANKS], tl.float32)
        end = tl.minimum(share * SHARE + SHARE, WIDTH)
        for start in tl.range(share * SHARE, end, PIECE, num_stages=2 if PARTS == 1 else 1):
            k = start + tl.arange(0, PIECE)
            known = (k < WIDTH)[None, :]
            weights = tl.load(rows[:, None] + k[None, :], mask=known, other=0.0)
            if PARTS > 1:
                a = _one_head(inputs, shares, s, k, alike, batch, WIDTH, HEADS, PARTS)
            else:
                at = inputs + s[:, None] * WIDTH + k[None, :]
                a = tl.load(at, mask=alike[:, None] & known, other=0.0)
            sums = tl.dot(a, tl.trans(weights.to(a.dtype)), sums, input_precision="ieee")
        place = (share * batch + s)[:, None] * ALL_RANKS + r[None, :]
        tl.store(narrow + place, sums, mask=alike[:, None])
    let_next_start(CHAINED)


@launched
@triton.jit(do_not_specialize=["batch"])
def _adapters_up(
    narrow, numbers, up, added, batch,
    OUTPUTS: tl.constexpr, RANK: tl.constexpr, ALL_RANKS: tl.constexpr, SECOND: tl.constexpr,
    THIRD: tl.constexpr, SHARES: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    s, alike, own, first = _block(numbers, tl.program_id(1), batch, COLUMNS)
    start = tl.program_id(0) * ROWS
    part = (start >= SECOND).to(tl.int32) + (start >= THIRD).to(tl.int32)
    n = start + tl.arange(0, ROWS)
    r = tl.arange(0, RANK)
    rows = up + (own.to(tl.int64) * OUTPUTS + n[:, None]) * RANK + r[None, :]
    # The matrix does not depend on the kernel before.
    weights = tl.load(rows, mask=(n >= 0)[:, None] & (first & (own > 0)), other=0.0).to(tl.float32)
    wait_for_previous(CHAINED)
    if first:
        seen = (alike & (own > 0))[:, None]  # Nothing was written for a sequence without an adapter.
        at = narrow + s[:, None] * ALL_RANKS + part * RANK + r[None, :]
        t = tl.zeros([COLUMNS, RANK], tl.float32)
        for share in tl.static_range(SHARES):
            t += tl.load(at + share * batch * ALL_RANKS, mask=seen, other=0.0)
        found = tl.dot(t, tl.trans(weights), input_precision="tf32")
        tl.store(added + s[:, None] * OUTPUTS + n[None, :], found, mask=alike[:, None])
    let_next_start(CHAINED)


def step_addend(
    stack: AdapterStack | None,
    numbers: Tensor | None,
    inputs: Tensor,
    shares: Tensor,
    chained: int = NOT_CHAINED,
) -> Tensor | None:
    """The adapters' share of a layer's products, float32 ``[S, outputs]``, zeros for a sequence without one;
    None if no adapter changes the layer.

    Args:
        numbers: int32 ``[S]``, of the sequences' adapters; complete before the step.
        inputs: ``[parts, S, K]``.
        shares: float32 ``[parts, S, H]``, as `step_residual` takes them; not read where there is one part.
    """
    if stack is None or numbers is None:
        return None
    parts, batch, width = inputs.shape
    outputs, rank, all_ranks = stack.up.shape[1], stack.rank, stack.down.shape[1]
    columns = FEW if batch <= FEW else MANY
    # Of parts a program joins one head.
    piece, share = (PIECE, SHARE) if parts == 1 else (width // shares.shape[-1],) * 2
    pieces = cdiv(width, share)
    narrow = inputs.new_empty(pieces, batch, all_ranks, dtype=torch.float32)
    added = inputs.new_empty(batch, outputs, dtype=torch.float32)
    _adapters_down[(all_ranks // RANKS, batch, pieces)](
        inputs, shares, numbers, stack.down, narrow, batch,
        width, shares.shape[-1], parts, all_ranks, columns, RANKS, piece, share, chained,
        num_warps=WARPS, launch_pdl=chained > 0,
    )  # fmt: skip
    rows = math.gcd(OUTPUTS * columns, *stack.sizes)
    ends = [sum(stack.sizes[:place]) for place in (1, 2)]
    _adapters_up[(outputs // rows, batch)](
        narrow, numbers, stack.up, added, batch,
        outputs, rank, all_ranks, *ends, pieces, columns, rows, chained,
        num_warps=WARPS, launch_pdl=chained > 0,
    )  # fmt: skip
    return added
