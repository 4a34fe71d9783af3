"""Convolution along the rows of a right-padded batch, channels last, and Snake, before or after it."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import NOT_CHAINED, let_next_start, snake, wait_for_previous
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.gpu.kernels.tiles import Tile

LEAST_WIDTH = 16
"""Fewest channels that tensor cores multiply; narrower signals are padded with channels of zeros."""


@dataclass(frozen=True, eq=False)
class RowConvWeights:
    """Weights of a convolution along rows.

    Attributes:
        weight: ``[taps, C_in, C_out]``, both numbers of channels multiples of 16.
        bias: float32 ``[C_out]``.
        first: the step that the first tap reads, counted from the one that is written.
        dilation: steps from tap to tap.
    """

    weight: Tensor
    bias: Tensor
    first: int
    dilation: int = 1


@launched
@triton.jit(
    do_not_specialize=[
        "total", "steps", "in_steps", "taps", "first", "dilation", "added", "kept", "activated",
    ]
)  # fmt: skip
def _row_conv(
    x, weight, bias, residual, alpha, lengths, out, active,
    total, steps, in_steps, taps, first, dilation, added, kept, activated,
    IN: tl.constexpr, OUT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    STAGES: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    BLOCKS: tl.constexpr = IN // DEPTH
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, DEPTH)
    inside = m < total
    row = m // steps
    step = m % steps
    start = row * in_steps + step
    b = tl.load(bias + n)
    wait_for_previous(CHAINED)
    length = tl.load(lengths + row, mask=inside, other=0).to(tl.int32)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for index in tl.range(0, taps * BLOCKS, num_stages=STAGES):
        shift = first + (index // BLOCKS) * dilation
        known = inside & (step + shift >= 0) & (step + shift < in_steps)
        channel = (index % BLOCKS) * DEPTH + k
        a = tl.load(x + (start + shift)[:, None] * IN + channel[None, :], mask=known[:, None], other=0.0)
        w = tl.load(weight + (index * DEPTH + k)[:, None] * OUT + n[None, :])
        sums = tl.dot(a, w, sums, input_precision="ieee")
    y = sums + b[None, :]
    place = m[:, None] * OUT + n[None, :]
    if added:
        y += tl.load(residual + place, mask=inside[:, None], other=0.0).to(tl.float32)
    y = tl.where((step < length)[:, None], y, 0.0)
    let_next_start(CHAINED)
    if kept:
        tl.store(out + place, y.to(out.dtype.element_ty), mask=inside[:, None])
    if activated:
        y = snake(y, tl.load(alpha + n)[None, :])
        tl.store(active + place, y.to(active.dtype.element_ty), mask=inside[:, None])


def row_conv(
    x: Tensor,
    weights: RowConvWeights,
    lengths: Tensor,
    tile: Tile,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    alpha: Tensor | None = None,
    active: Tensor | None = None,
    chained: int = NOT_CHAINED,
) -> None:
    """``out = convolution of x + bias + residual``, zero from each row's end on; ``active = snake(out)``.

    Args:
        x: ``[B, S', C_in]``, zero from each row's end on; steps outside are zeros.
        lengths: int64 ``[B]`` steps of each row that are written.
        residual, out, active: ``[B, S, C_out]``; at least one of the last two. ``out`` may be the residual.
        alpha: float32 ``[C_out]`` of the activation.
    """
    shaped = active if out is None else out
    assert shaped is not None
    rows, steps, width = shaped.shape
    taps, channels, _ = weights.weight.shape
    columns, depth = _divisor(width, tile.columns), _divisor(channels, tile.depth)
    _row_conv[(width // columns, cdiv(rows * steps, tile.rows))](
        # In an unused place stands a tensor of the same type, so that one compiled kernel serves all.
        x, weights.weight, weights.bias, _or(residual, shaped), _or(alpha, weights.bias), lengths,
        _or(out, shaped), _or(active, shaped),
        rows * steps, steps, x.shape[1], taps, weights.first, weights.dilation,
        int(residual is not None), int(out is not None), int(active is not None),
        channels, width, tile.rows, columns, depth, tile.stages, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


def _divisor(width: int, most: int) -> int:
    """The largest power of two that divides a width, up to ``most``."""
    return min(width & -width, most)


def _or(tensor: Tensor | None, unused: Tensor) -> Tensor:
    return unused if tensor is None else tensor


ELEMENTS = 4096
"""Of one program."""


@launched
@triton.jit(do_not_specialize=["total", "steps"])
def _snakes(
    x, added, alphas, lengths, out, actives, total, steps,
    CHANNELS: tl.constexpr, BLOCKS: tl.constexpr, MIRRORED: tl.constexpr, ROWS: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, CHANNELS)[None, :]
    inside = m < total
    row = m // steps
    step = m % steps
    read = m
    if MIRRORED:
        read = row * (steps - 1) + tl.where(step == 0, 1, step - 1)
    place = m[:, None] * CHANNELS + c
    wait_for_previous(CHAINED)
    length = tl.load(lengths + row, mask=inside, other=0).to(tl.int32)
    new = inside & (step < length)
    y = tl.load(x + read[:, None] * CHANNELS + c, mask=new[:, None], other=0.0).to(tl.float32)
    y += tl.load(added + place, mask=new[:, None], other=0.0).to(tl.float32)
    let_next_start(CHAINED)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside[:, None])
    for block in tl.static_range(BLOCKS):
        z = snake(y, tl.load(alphas + block * CHANNELS + c))
        at = actives + block * total * CHANNELS + place
        tl.store(at, z.to(actives.dtype.element_ty), mask=inside[:, None])


def snakes(
    x: Tensor,
    added: Tensor,
    alphas: Tensor,
    lengths: Tensor,
    out: Tensor,
    actives: Tensor,
    chained: int = NOT_CHAINED,
) -> None:
    """``out = x + added``, zero from each row's end on, and its Snake with each block's ``alphas``.

    Args:
        x: ``[B, S, C]``, C a power of two; of S - 1 steps, its second step comes before all of them.
        added, out: ``[B, S, C]``.
        alphas: float32 ``[blocks, C]``.
        lengths: int64 ``[B]``.
        actives: ``[blocks, B, S, C]``.
    """
    rows, steps, channels = out.shape
    of_program = max(1, ELEMENTS // channels)
    _snakes[(cdiv(rows * steps, of_program),)](
        x, added, alphas, lengths, out, actives, rows * steps, steps,
        channels, len(alphas), x.shape[1] < steps, of_program, chained,
        launch_pdl=chained > 0,
    )  # fmt: skip
