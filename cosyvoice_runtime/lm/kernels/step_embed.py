"""Embedding of the tokens that a step feeds, and what the first norm needs of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import NOT_CHAINED, let_next_start, let_next_start_at_once
from cosyvoice_runtime.gpu.kernels.launch import launched

SHRINK = 2.0**-6
"""Between kernels, activations are this much smaller: so float16 has room for outliers of some millions. Its
ten binary digits lose an eighth of what bfloat16 would."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """A residual on its way through an RMSNorm: what divides it is known only when all of it is there.

    Attributes:
        values: ``[S, C]`` the residual times the norm's weight and `SHRINK`.
        squares: float32 ``[S, parts]`` sums of squares of the residual, each over ``C / parts`` channels.
    """

    values: Tensor
    squares: Tensor

    @classmethod
    def empty(cls, residual: Tensor, dtype: torch.dtype, part: int) -> Scaled:
        """Memory for a residual ``[S, C]`` in parts of so many channels."""
        batch, channels = residual.shape
        return cls(torch.empty_like(residual, dtype=dtype), residual.new_empty(batch, channels // part))

    def normed(self, epsilon: float) -> Tensor:
        """float32 ``[S, C]``."""
        mean = self.squares.sum(dim=1, keepdim=True) / self.values.shape[1]
        return self.values.float() / SHRINK * torch.rsqrt(mean + epsilon)

    def take(self, residual: Tensor, gain: Tensor) -> None:
        """Take a residual ``[S, C]``, as the kernels do."""
        self.values.copy_(residual * gain * SHRINK)
        self.squares.copy_(residual.square().unflatten(1, (self.squares.shape[1], -1)).sum(dim=2))


@triton.jit
def store_scaled(
    new, gain, s, inside, n, x, scaled, squares, part,
    CHANNELS: tl.constexpr, PARTS: tl.constexpr, SHRINK: tl.constexpr,
):  # fmt: skip
    """Store some channels ``n`` of the residual and, for the norm that comes next, of `Scaled`."""
    at = s[:, None] * CHANNELS + n[None, :]
    tl.store(x + at, new, mask=inside[:, None])
    tl.store(scaled + at, (new * (gain * SHRINK)[None, :]).to(scaled.dtype.element_ty), mask=inside[:, None])
    tl.store(squares + s * PARTS + part, tl.sum(new * new, axis=1), mask=inside)


@launched
@triton.jit(do_not_specialize=["batch"])
def _step_embed(
    tokens, table, gain, x, scaled, squares, batch,
    CHANNELS: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr,
    SHRINK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    part = tl.program_id(0)
    n = part * ROWS + tl.arange(0, ROWS)
    s = tl.program_id(1) + tl.arange(0, 1)
    inside = s < batch
    token = tl.load(tokens + s)
    row = tl.load(table + token[:, None] * CHANNELS + n[None, :]).to(tl.float32)
    let_next_start(CHAINED)
    store_scaled(row, tl.load(gain + n), s, inside, n, x, scaled, squares, part, CHANNELS, PARTS, SHRINK)


def step_embed(
    tokens: Tensor, table: Tensor, gain: Tensor, x: Tensor, scaled: Scaled, chained: int = NOT_CHAINED
) -> None:
    """The first kernel of a step. It starts after all work before: later ones read the step's inputs at once.

    Args:
        tokens: ``[S]`` int64; table: ``[V, C]``.
        gain: float32 ``[C]`` of the norm that comes next.
        x, scaled: float32 ``[S, C]`` the residual, and itself for the norm; written.
    """
    batch, channels = x.shape
    parts = scaled.squares.shape[1]
    _step_embed[(parts, batch)](
        tokens, table, gain, x, scaled.values, scaled.squares, batch,
        channels, parts, channels // parts, SHRINK, chained, num_warps=1,
    )  # fmt: skip
