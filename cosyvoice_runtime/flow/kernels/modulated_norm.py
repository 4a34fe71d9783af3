"""LayerNorm whose scale and shift the time gives, in the network's type for the layers that read it."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.torch.dit import NORM_EPS
from cosyvoice_runtime.gpu.kernels.arithmetic import NOT_CHAINED, let_next_start, normalise, wait_for_previous
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.gpu.kernels.tiles import Tile


@launched
@triton.jit(do_not_specialize=["rows"])
def _modulated_norm(
    x, gain, shift, out, rows,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, CHANNELS)
    g = tl.load(gain + c)[None, :]
    s = tl.load(shift + c)[None, :]
    wait_for_previous(CHAINED)
    inside = (m < rows)[:, None]
    place = m[:, None] * CHANNELS + c[None, :]
    y = normalise(tl.load(x + place, mask=inside, other=0.0), CHANNELS, EPS) * g + s
    let_next_start(CHAINED)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)


def modulated_norm(
    x: Tensor, gain: Tensor, shift: Tensor, out: Tensor, tile: Tile, chained: int = NOT_CHAINED
) -> None:
    """``out = norm(x) * gain + shift``, ``[M, C]`` each, ``x`` float32.

    Args:
        gain, shift: float32 ``[C]``.
    """
    rows, channels = x.shape
    _modulated_norm[(cdiv(rows, tile.rows),)](
        x, gain, shift, out, rows, channels, NORM_EPS, tile.rows, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
