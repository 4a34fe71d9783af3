"""Functions that several kernels use."""

from __future__ import annotations

import triton
import triton.language as tl

NOT_CHAINED, LATE, EARLY, FIRST = 0, 1, 2, 3
"""The values of a kernel's ``chained``: whether it starts before the previous kernel ends (programmatic
dependent launch), and when it lets the next one start: before it stores, as soon as it may read, or at its
start."""


@triton.jit
def let_next_start_at_once(CHAINED: tl.constexpr):
    """Let the next kernel start when all programs of this one have started."""
    if CHAINED == 3:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_for_previous(CHAINED: tl.constexpr):
    """Wait for the previous kernel, after which its memory may be read."""
    if CHAINED:
        tl.extra.cuda.gdc_wait()
        if CHAINED == 2:
            tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def let_next_start(CHAINED: tl.constexpr):
    """Let the next kernel start, up to its own wait."""
    if CHAINED == 1:
        tl.extra.cuda.gdc_launch_dependents()


LOG2_E = 1.4426950408889634
"""Softmax uses powers of two, for which the hardware has an instruction."""
LINE = tl.constexpr(64)
"""The float16 numbers in a cache line."""


@triton.jit
def fetch_ahead(weight, n, WIDTH: tl.constexpr, AHEAD: tl.constexpr, CHAINED: tl.constexpr):
    """Prefetch rows ``n`` of a weight ``[N, WIDTH]`` into the L2 cache before the kernel's wait."""
    if AHEAD and CHAINED:
        lines = weight + n[:, None] * WIDTH + LINE * tl.arange(0, WIDTH // LINE)[None, :]
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [lines], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def linear_sums(
    hidden, weight, m, n, inside,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Multiply rows ``m`` of ``hidden [M, WIDTH]`` by rows ``n`` of a weight; the result is float32 ``[ROWS,
    COLUMNS]``."""
    k = tl.arange(0, DEPTH)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in tl.range(0, WIDTH, DEPTH, num_stages=STAGES):
        w = tl.load(weight + n[None, :] * WIDTH + (start + k)[:, None])
        a = tl.load(hidden + m[:, None] * WIDTH + (start + k)[None, :], mask=inside[:, None], other=0.0)
        sums = tl.dot(a.to(w.dtype), w, sums, input_precision="ieee")
    return sums


@triton.jit
def normalise(x, CHANNELS: tl.constexpr, EPSILON: tl.constexpr):
    """Apply LayerNorm without scale and shift to float32 ``[M, CHANNELS]``."""
    centred = x - (tl.sum(x, axis=1) / CHANNELS)[:, None]
    variance = tl.sum(centred * centred, axis=1) / CHANNELS
    return centred * tl.rsqrt(variance + EPSILON)[:, None]


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_by_tanh(x):
    """Apply GELU in its tanh approximation: 0.5 x (1 + tanh u) is x times the logistic function of 2 u."""
    return x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def mish(x):
    """Apply Mish, x * tanh(log(1 + e^x)), with one exponential."""
    e = tl.exp(tl.minimum(x, 20.0))  # Mish equals x above this value, and the square stays finite.
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


@triton.jit
def snake(x, alpha):
    """Apply Snake, x + sin(alpha x)^2 / alpha; the sine is a series within half a turn."""
    turns = x * (alpha * 0.3183098861837907)
    angle = (turns - tl.floor(turns + 0.5)) * 3.141592653589793
    a = angle * angle
    sine = a * (-1.984126984e-4 + a * (2.755731922e-6 - a * 2.505210839e-8))
    sine = angle * (1.0 + a * (-0.1666666667 + a * (8.333333333e-3 + sine)))
    return x + sine * sine * (1.0 / (alpha + 1e-9))
