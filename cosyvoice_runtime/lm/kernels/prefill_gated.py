"""The gate of a feed-forward times its upward layer (SwiGLU), from one product of both."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import silu
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched

COLUMNS, WARPS = 1024, 4
"""Sizes of a program."""


@launched
@triton.jit
def _prefill_gated(gate_up, inner, INNER: tl.constexpr, COLUMNS: tl.constexpr):
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    m = tl.program_id(1)
    inside = n < INNER
    place = gate_up + m * (2 * INNER) + n
    gate = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(place + INNER, mask=inside, other=0.0).to(tl.float32)
    gated = silu(gate) * up
    tl.store(inner + m * INNER + n, gated.to(inner.dtype.element_ty), mask=inside)


def prefill_gated(gate_up: Tensor, inner: Tensor) -> None:
    """
    Args:
        gate_up: ``[N, 2 * I]``, the gate first.
        inner: ``[N, I]``, written.
    """
    rows, size = inner.shape
    _prefill_gated[(cdiv(size, COLUMNS), rows)](gate_up, inner, size, COLUMNS, num_warps=WARPS)
