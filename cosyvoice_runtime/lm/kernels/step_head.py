"""The last RMSNorm and the output head."""

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
from cosyvoice_runtime.lm.kernels.step_embed import SHRINK, Scaled
from cosyvoice_runtime.lm.kernels.step_rows import (
    held,
    inverse_norm,
    load_pieces,
    load_squares,
    streamed,
)
from cosyvoice_runtime.lm.kernels.step_tiles import StepTile


@launched
@triton.jit(do_not_specialize=["batch"])
def _step_head(
    scaled, squares, weight, bias, logits, batch,
    WIDTH: tl.constexpr, TOKENS: tl.constexpr,
    PARTS: tl.constexpr, PADDED_PARTS: tl.constexpr, EPS: tl.constexpr, SHRINK: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
    STAGES: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    PIECES: tl.constexpr = (WIDTH + PIECE - 1) // PIECE
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    s = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = s < batch
    known = tl.minimum(n, TOKENS - 1)  # the last program's rows end with the table
    b = tl.load(bias + known)
    if STAGES:
        wait_for_previous(CHAINED)
        parts = load_squares(squares, s, inside, PARTS, PADDED_PARTS)
        found = streamed(weight, known, scaled, s, batch, WIDTH, ROWS, COLUMNS, PIECE, STAGES)
    else:
        rows = load_pieces(weight, known, PIECES, WIDTH, PIECE, GROUPS)
        wait_for_previous(CHAINED)
        parts = load_squares(squares, s, inside, PARTS, PADDED_PARTS)
        found = held(weight, known, rows, scaled, s, inside, WIDTH, ROWS, COLUMNS, PIECE, GROUPS, PIECES)
    scale = inverse_norm(parts, WIDTH, EPS, SHRINK)
    let_next_start(CHAINED)
    at = logits + s[:, None] * TOKENS + n[None, :]
    mask = inside[:, None] & (n < TOKENS)[None, :]
    tl.store(at, found * scale + b[None, :], mask=mask)


def step_head(
    scaled: Scaled,
    weight: Tensor,
    bias: Tensor,
    epsilon: float,
    logits: Tensor,
    tile: StepTile,
    chained: int = NOT_CHAINED,
) -> None:
    """
    Args:
        weight, bias: ``[V, C]`` and float32 ``[V]``.
        logits: float32 ``[S, V]``, written.
    """
    batch, width = scaled.values.shape
    parts, tokens = scaled.squares.shape[1], logits.shape[1]
    _step_head[(cdiv(tokens, tile.rows), cdiv(batch, tile.columns))](
        scaled.values, scaled.squares, weight, bias, logits, batch,
        width, tokens, parts, next_power_of_2(parts), epsilon, SHRINK,
        tile.rows, tile.columns, tile.piece, tile.groups, tile.stages, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
