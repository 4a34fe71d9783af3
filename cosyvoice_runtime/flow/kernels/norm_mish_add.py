"""LayerNorm and Mish of a convolution, and the shortcut: the end of a residual block."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    let_next_start,
    mish,
    normalise,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.gpu.kernels.tiles import Tile

EPSILON = 1e-5


@launched
@triton.jit(do_not_specialize=["rows"])
def _norm_mish_add(
    x, scale, shift, shortcut, out, rows, x_stride, shortcut_stride, out_stride,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    m = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    c = tl.arange(0, CHANNELS)[None, :]
    gain = tl.load(scale + c)
    offset = tl.load(shift + c)
    wait_for_previous(CHAINED)
    inside = m < rows
    y = tl.load(x + m * x_stride + c, mask=inside, other=0.0)
    old = tl.load(shortcut + m * shortcut_stride + c, mask=inside, other=0.0)
    y = mish(normalise(y, CHANNELS, EPS) * gain + offset) + old
    let_next_start(CHAINED)
    tl.store(out + m * out_stride + c, y.to(out.dtype.element_ty), mask=inside)


def norm_mish_add(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    shortcut: Tensor,
    out: Tensor,
    tile: Tile,
    chained: int = NOT_CHAINED,
) -> None:
    """``out = mish(norm(x)) + shortcut``, ``[M, C]`` each, all but ``out`` float32; rows may be apart.

    Args:
        scale, shift: float32 ``[C]`` of the norm.
    """
    rows, channels = x.shape
    _norm_mish_add[(cdiv(rows, tile.rows),)](
        x, scale, shift, shortcut, out, rows, x.stride(0), shortcut.stride(0), out.stride(0),
        channels, EPSILON, tile.rows, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
