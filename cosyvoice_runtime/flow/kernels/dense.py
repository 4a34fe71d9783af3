"""A linear layer by itself, which can activate its output."""

from __future__ import annotations

from math import gcd

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    fetch_ahead,
    gelu_by_tanh,
    let_next_start,
    linear_sums,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.gpu.kernels.tiles import Tile


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
