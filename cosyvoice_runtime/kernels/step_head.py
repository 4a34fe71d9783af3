"""The last RMSNorm and the output head."""

from __future__ import annotations

import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.kernels.arithmetic import NOT_CHAINED, let_next_start, wait_for_previous
from cosyvoice_runtime.kernels.step_embed import Scaled
from cosyvoice_runtime.kernels.step_rows import (
    added_up,
    inverse_norm,
    load_inputs,
    load_pieces,
    no_sums,
    product,
)
from cosyvoice_runtime.kernels.step_tiles import StepTile


@triton.jit(do_not_specialize=["batch"])
def _step_head(
    scaled, squares, weight, bias, logits, batch,
    WIDTH: tl.constexpr, TOKENS: tl.constexpr,
    PARTS: tl.constexpr, PADDED_PARTS: tl.constexpr, EPS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    PIECES: tl.constexpr = (WIDTH + PIECE - 1) // PIECE
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    s = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = s < batch
    known = tl.minimum(n, TOKENS - 1)  # the last program's rows end with the table
    rows = load_pieces(weight, known, WIDTH, PIECE, GROUPS, PIECES)
    b = tl.load(bias + known)
    wait_for_previous(CHAINED)
    scale = inverse_norm(squares, s, inside, WIDTH, PARTS, PADDED_PARTS, EPS)[:, None]
    sums = no_sums(COLUMNS, ROWS, PIECE, GROUPS)
    for piece in tl.static_range(PIECES):
        a = load_inputs(scaled, s, inside, piece, WIDTH, PIECE, GROUPS)
        sums = product(a, rows[piece], sums, COLUMNS)
    let_next_start(CHAINED)
    at = logits + s[:, None] * TOKENS + n[None, :]
    mask = inside[:, None] & (n < TOKENS)[None, :]
    tl.store(at, added_up(sums, COLUMNS) * scale + b[None, :], mask=mask)


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
    _step_head[(triton.cdiv(tokens, tile.rows), triton.cdiv(batch, tile.columns))](
        scaled.values, scaled.squares, weight, bias, logits, batch,
        width, tokens, parts, triton.next_power_of_2(parts), epsilon,
        tile.rows, tile.columns, tile.piece, tile.groups, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


def step_head_plain(scaled: Scaled, weight: Tensor, bias: Tensor, epsilon: float, logits: Tensor) -> None:
    """As :func:`step_head`."""
    logits.copy_(F.linear(scaled.normed(epsilon), weight.float(), bias))
