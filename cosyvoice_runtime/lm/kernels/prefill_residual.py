"""The addition of a product to the residual of prompts, and its norm for the next product."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.launch import launched, next_power_of_2
from cosyvoice_runtime.lm.kernels.prefill_embed import WARPS, store_normed


@launched
@triton.jit
def _prefill_residual(
    product, gain, x, normed, CHANNELS: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr
):
    c = tl.arange(0, BLOCK)
    inside = c < CHANNELS
    at = tl.program_id(0) * CHANNELS + c
    new = tl.load(x + at, mask=inside, other=0.0)
    new += tl.load(product + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gain + c, mask=inside, other=0.0)
    store_normed(new, g, at, inside, x, normed, CHANNELS, EPS)


def prefill_residual(product: Tensor, gain: Tensor, epsilon: float, x: Tensor, normed: Tensor) -> None:
    """
    Args:
        product: ``[N, C]``, added to the residual.
        gain: ``[C]`` of the norm that comes next.
        x: float32 ``[N, C]`` the residual, updated.
        normed: ``[N, C]``, written, in the type of products.
    """
    rows, channels = x.shape
    _prefill_residual[(rows,)](
        product, gain, x, normed, channels, epsilon, next_power_of_2(channels), num_warps=WARPS
    )
