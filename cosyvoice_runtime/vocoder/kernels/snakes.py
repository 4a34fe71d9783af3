"""The sum of two signals and what several residual blocks make of it first."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import NOT_CHAINED, let_next_start, snake, wait_for_previous
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched

ELEMENTS = 4096
"""Of one program."""


@launched
@triton.jit(do_not_specialize=["total", "steps"])
def _snakes(
    x, added, alphas, lengths, out, actives, total, steps,
    CHANNELS: tl.constexpr, BLOCKS: tl.constexpr, MIRRORED: tl.constexpr, ROWS: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, CHANNELS)[None, :]
    inside = m < total
    row = m // steps
    step = m % steps
    read = m
    if MIRRORED:
        read = row * (steps - 1) + tl.where(step == 0, 1, step - 1)
    place = m[:, None] * CHANNELS + c
    wait_for_previous(CHAINED)
    length = tl.load(lengths + row, mask=inside, other=0).to(tl.int32)
    new = inside & (step < length)
    y = tl.load(x + read[:, None] * CHANNELS + c, mask=new[:, None], other=0.0).to(tl.float32)
    y += tl.load(added + place, mask=new[:, None], other=0.0).to(tl.float32)
    let_next_start(CHAINED)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside[:, None])
    for block in tl.static_range(BLOCKS):
        z = snake(y, tl.load(alphas + block * CHANNELS + c))
        at = actives + block * total * CHANNELS + place
        tl.store(at, z.to(actives.dtype.element_ty), mask=inside[:, None])


def snakes(
    x: Tensor,
    added: Tensor,
    alphas: Tensor,
    lengths: Tensor,
    out: Tensor,
    actives: Tensor,
    chained: int = NOT_CHAINED,
) -> None:
    """``out = x + added``, zero from each row's end on, and its Snake with each block's ``alphas``.

    Args:
        x: ``[B, S, C]``, C a power of two; of S - 1 steps, its second step comes before all of them.
        added, out: ``[B, S, C]``.
        alphas: float32 ``[blocks, C]``.
        lengths: int64 ``[B]``.
        actives: ``[blocks, B, S, C]``.
    """
    rows, steps, channels = out.shape
    of_program = max(1, ELEMENTS // channels)
    _snakes[(cdiv(rows * steps, of_program),)](
        x, added, alphas, lengths, out, actives, rows * steps, steps,
        channels, len(alphas), x.shape[1] < steps, of_program, chained,
        launch_pdl=chained > 0,
    )  # fmt: skip
