"""LayerNorm, the first layer of a feed-forward and its GELU."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    gelu,
    let_next_start,
    normalise,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.gpu.kernels.tiles import Tile

EPSILON = 1e-5


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
        for turn in tl.range(0, REPEAT, num_stages=STAGES):
            w = tl.load(at + turn * (COLUMNS * CHANNELS))
            wide = tl.dot(normed, w, input_precision="ieee") + tl.load(bias + turn * COLUMNS + n)[None, :]
            tl.store(out + turn * COLUMNS, gelu(wide).to(hidden.dtype.element_ty), mask=inside[:, None])
        let_next_start(CHAINED)


def norm_widen(
    x: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, tile: Tile, chained: int = NOT_CHAINED
) -> None:
    """
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
        channels, width, EPSILON, tile.rows, columns, repeat, tile.stages, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
