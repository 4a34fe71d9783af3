"""RMSNorm, and the gate of a feed-forward times its upward layer (SwiGLU)."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    let_next_start,
    let_next_start_at_once,
    silu,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched, next_power_of_2
from cosyvoice_runtime.lm.kernels.step_embed import SHRINK, Scaled
from cosyvoice_runtime.lm.kernels.step_rows import (
    held_pair,
    inverse_norm,
    load_pieces,
    load_squares,
    streamed_pair,
)
from cosyvoice_runtime.lm.kernels.step_tiles import StepTile


@launched
@triton.jit(do_not_specialize=["batch"])
def _step_gated(
    scaled, squares, weight, inner, batch,
    WIDTH: tl.constexpr, INNER: tl.constexpr,
    PARTS: tl.constexpr, PADDED_PARTS: tl.constexpr, EPS: tl.constexpr, SHRINK: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
    STAGES: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    PIECES: tl.constexpr = (WIDTH + PIECE - 1) // PIECE
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    s = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = s < batch
    if STAGES:
        wait_for_previous(CHAINED)
        parts = load_squares(squares, s, inside, PARTS, PADDED_PARTS)
        gate, up = streamed_pair(weight, n, n + INNER, scaled, s, batch, WIDTH, ROWS, COLUMNS, PIECE, STAGES)
    else:
        gate_rows = load_pieces(weight, n, PIECES, WIDTH, PIECE, GROUPS)
        up_rows = load_pieces(weight, n + INNER, PIECES, WIDTH, PIECE, GROUPS)
        wait_for_previous(CHAINED)
        parts = load_squares(squares, s, inside, PARTS, PADDED_PARTS)
        gate, up = held_pair(gate_rows, up_rows, scaled, s, inside, WIDTH, ROWS, COLUMNS, PIECE, GROUPS)
    scale = inverse_norm(parts, WIDTH, EPS, SHRINK)
    let_next_start(CHAINED)
    gate *= scale
    gated = silu(gate) * (up * scale) * SHRINK
    at = inner + s[:, None] * INNER + n[None, :]
    tl.store(at, gated.to(inner.dtype.element_ty), mask=inside[:, None])


def step_gated(
    scaled: Scaled, weight: Tensor, epsilon: float, inner: Tensor, tile: StepTile, chained: int = NOT_CHAINED
) -> None:
    """
    Args:
        weight: ``[2 * I, C]``, the gate's rows first.
        inner: ``[S, I]``, written; `SHRINK` times its size.
    """
    batch, width = scaled.values.shape
    parts, size = scaled.squares.shape[1], inner.shape[1]
    _step_gated[(size // tile.rows, cdiv(batch, tile.columns))](
        scaled.values, scaled.squares, weight, inner, batch,
        width, size, parts, next_power_of_2(parts), epsilon, SHRINK,
        tile.rows, tile.columns, tile.piece, tile.groups, tile.stages, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
