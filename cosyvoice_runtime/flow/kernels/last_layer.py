"""The last layer of an estimator, classifier-free guidance and one step of the solver."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.kernels.layers import NORM_EPSILON
from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    let_next_start,
    mish,
    normalise,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched, next_power_of_2
from cosyvoice_runtime.gpu.kernels.tiles import Tile


@dataclass(frozen=True, eq=False)
class SolverStep:
    """Numbers and memory of one step: ``mel += size * (v + slope * (v - before))`` of its velocity v.

    Attributes:
        size: float32 ``[1]``.
        rate: of guidance, v = (1 + rate) * conditioned - rate * unconditioned; 0: frames without guidance are
            not there.
        mel: float32 ``[M, mel]``, updated.
        packed: ``[R M, C_in]`` of R guidance rows, the next step's input: its first channels become the new
            mel.
        slope: float32 ``[1]``; None with ``before``: no step of this solver has one.
        before: float32 ``[M, mel]``, the velocity of the step before, anything where the slope is 0; becomes
            v.
    """

    size: Tensor
    rate: float
    mel: Tensor
    packed: Tensor
    slope: Tensor | None = None
    before: Tensor | None = None

    @property
    def arguments(self) -> tuple[Tensor | float, ...]:
        """Arguments of a kernel, with others in place of those that it does not read."""
        slope = self.size if self.slope is None else self.slope
        before = self.mel if self.before is None else self.before
        rows, stride = len(self.mel), self.packed.stride(0)
        return self.size, slope, self.mel, before, self.packed, rows, stride, self.rate

    @property
    def kind(self) -> tuple[bool, bool]:
        """Whether there is guidance, and whether the solver looks back: constants of a kernel."""
        return self.rate != 0, self.before is not None


@triton.jit
def take_step(
    mel, before, packed, velocity, size, slope, m, n, here, rows, packed_stride,
    BINS: tl.constexpr, GUIDED: tl.constexpr, SLOPED: tl.constexpr,
):  # fmt: skip
    """Frames ``m`` of the mel go on, and into the next step's input of all guidance rows."""
    at = m[:, None] * BINS + n[None, :]
    if SLOPED:
        old = tl.load(before + at, mask=here, other=0.0)
        tl.store(before + at, velocity, mask=here)
        velocity += tl.where(slope != 0, slope * (velocity - old), 0.0)
    new = tl.load(mel + at, mask=here, other=0.0) + size * velocity
    tl.store(mel + at, new, mask=here)
    new = new.to(packed.dtype.element_ty)
    tl.store(packed + m[:, None] * packed_stride + n[None, :], new, mask=here)
    if GUIDED:
        tl.store(packed + (rows + m)[:, None] * packed_stride + n[None, :], new, mask=here)


@launched
@triton.jit(do_not_specialize=["rows"])
def _norm_step(
    hidden, scale, shift, weight, bias, size, slope, mel, before, packed, rows, packed_stride, rate,
    GUIDED: tl.constexpr, SLOPED: tl.constexpr,
    CHANNELS: tl.constexpr, BINS: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.arange(0, COLUMNS)
    c = tl.arange(0, CHANNELS)
    known = n < BINS
    inside = (m < rows)[:, None]
    w = tl.load(weight + n[None, :] * CHANNELS + c[:, None], mask=known[None, :], other=0.0)
    b = tl.load(bias + n, mask=known, other=0.0)
    dt, steepness = tl.load(size), tl.load(slope)
    wait_for_previous(CHAINED)
    gain = tl.load(scale + c)[None, :]
    offset = tl.load(shift + c)[None, :]
    at = hidden + m[:, None] * CHANNELS + c[None, :]
    guided = tl.load(at, mask=inside, other=0.0)
    guided = mish(normalise(guided, CHANNELS, EPS) * gain + offset)
    if GUIDED:
        free = tl.load(at + rows * CHANNELS, mask=inside, other=0.0)
        free = mish(normalise(free, CHANNELS, EPS) * gain + offset)
        guided = (1 + rate) * guided - rate * free
    velocity = tl.dot(guided.to(w.dtype), w, input_precision="ieee") + b[None, :]
    let_next_start(CHAINED)
    take_step(
        mel, before, packed, velocity, dt, steepness, m, n, inside & known[None, :], rows, packed_stride,
        BINS, GUIDED, SLOPED,
    )  # fmt: skip


def norm_step(
    hidden: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Tensor,
    bias: Tensor,
    step: SolverStep,
    tile: Tile,
    chained: int = NOT_CHAINED,
) -> None:
    """A step along the velocity of CosyVoice2's last layers.

    Args:
        hidden: float32 ``[R M, C]`` from the last convolution, frames with guidance and then those without.
        scale, shift: float32 ``[C]`` of its LayerNorm; Mish follows.
        weight, bias: ``[mel, C]`` and float32 ``[mel]`` of the last layer; linear, so guidance goes first.
    """
    rows, bins = step.mel.shape
    _norm_step[(cdiv(rows, tile.rows),)](
        hidden, scale, shift, weight, bias, *step.arguments, *step.kind,
        hidden.shape[1], bins, NORM_EPSILON, tile.rows, next_power_of_2(bins), chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["rows"])
def _linear_step(
    hidden, weight, bias, size, slope, mel, before, packed, rows, packed_stride, rate,
    GUIDED: tl.constexpr, SLOPED: tl.constexpr, CHANNELS: tl.constexpr, BINS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    known = n < BINS
    inside = (m < rows)[:, None]
    b = tl.load(bias + n, mask=known, other=0.0)
    dt, steepness = tl.load(size), tl.load(slope)
    at = hidden + m[:, None] * CHANNELS + k[None, :]
    wait_for_previous(CHAINED)
    guided = tl.zeros([ROWS, COLUMNS], tl.float32)
    free = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in tl.range(0, CHANNELS, DEPTH, num_stages=STAGES):
        w = tl.load(weight + n[None, :] * CHANNELS + (start + k)[:, None], mask=known[None, :], other=0.0)
        a = tl.load(at + start, mask=inside, other=0.0)
        guided = tl.dot(a, w, guided, input_precision="ieee")
        if GUIDED:
            a = tl.load(at + rows * CHANNELS + start, mask=inside, other=0.0)
            free = tl.dot(a, w, free, input_precision="ieee")
    velocity = guided
    if GUIDED:
        velocity = (1 + rate) * guided - rate * free
    velocity += b[None, :]
    let_next_start(CHAINED)
    take_step(
        mel, before, packed, velocity, dt, steepness, m, n, inside & known[None, :], rows, packed_stride,
        BINS, GUIDED, SLOPED,
    )  # fmt: skip


def linear_step(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    step: SolverStep,
    tile: Tile,
    chained: int = NOT_CHAINED,
) -> None:
    """A step along the velocity of CosyVoice3's last layer.

    Args:
        hidden: ``[R M, C]``, normed, frames with guidance and then those without.
        weight, bias: ``[mel, C]`` and float32 ``[mel]`` of the layer.
    """
    rows, bins = step.mel.shape
    channels = hidden.shape[1]
    _linear_step[(cdiv(rows, tile.rows), cdiv(bins, tile.columns))](
        hidden, weight, bias, *step.arguments, *step.kind,
        channels, bins, tile.rows, tile.columns, gcd(tile.depth, channels), tile.stages, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
