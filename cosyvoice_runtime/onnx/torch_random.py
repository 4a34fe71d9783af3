"""torch's generator of random numbers on a CPU, bit for bit, in numpy.

MT19937 (Matsumoto and Nishimura, 1998); a uniform number is the low 24 bits of a draw. Normal numbers are
made of 16 uniform ones at a time (Box and Muller), with logarithm, sine and cosine of the Cephes library in
float32, rounded as a CPU with AVX2 and fused multiply-add rounds them.
"""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Floats

BLOCK = 16
"""Normal numbers that are made at a time."""
_F = np.float32
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_LN2 = (-2.12194440e-4, 0.693359375)
_QUARTER_PI = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)


class TorchRandom:
    """The generator ``torch.Generator().manual_seed(seed)``."""

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed & 0xFFFFFFFF)

    def uniform(self, count: int) -> Floats:
        """Draw ``torch.rand(count, generator=...)``: float32 from 0 to below 1."""
        drawn = self._state.randint(0, 1 << 32, count, dtype=np.uint32)
        return (drawn & 0xFFFFFF).astype(np.float32) * _F(2**-24)

    def normal(self, count: int) -> Floats:
        """``torch.randn(count, generator=...)`` for a multiple of :data:`BLOCK`; torch draws others
        differently."""
        pairs = self.uniform(count).reshape(-1, 2, BLOCK // 2)
        radius = np.sqrt(_F(-2) * _log(_F(1) - pairs[:, 0]))
        sine, cosine = _sine_cosine(_F(2 * np.pi) * pairs[:, 1])
        return np.stack([radius * cosine, radius * sine], axis=1).reshape(-1)


def _fused(a: Floats, b: Floats | np.float32, c: Floats | np.float32) -> Floats:
    """``a * b + c`` with one rounding."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


def _polynomial(coefficients: tuple[float, ...], x: Floats) -> Floats:
    value = np.full_like(x, _F(coefficients[0]))
    for coefficient in coefficients[1:]:
        value = _fused(value, x, _F(coefficient))
    return value


def _log(x: Floats) -> Floats:
    """Logarithm of normal numbers above 0."""
    bits = np.ascontiguousarray(x).view(np.int32)
    exponent = ((bits >> 23) - 0x7F).astype(np.float32) + _F(1)
    x = ((bits & np.int32(~0x7F800000)) | np.int32(0x3F000000)).view(np.float32)
    small = x < _F(0.707106781186547524)
    x = (x - _F(1)) + np.where(small, x, _F(0))
    exponent = exponent - small.astype(np.float32)
    square = x * x
    value = _polynomial(_LOG, x) * x
    value = _fused(value, square, exponent * _F(_LN2[0]))
    value = _fused(-square, _F(0.5), value)
    return _fused(exponent, _F(_LN2[1]), x + value)


def _sine_cosine(x: Floats) -> tuple[Floats, Floats]:
    octant = ((x * _F(1.27323954473516)).astype(np.int32) + 1) & ~1
    turned = octant.astype(np.float32)
    for part in _QUARTER_PI:
        x = _fused(turned, _F(part), x)
    square = x * x
    cosine = _polynomial(_COS, square) * square
    cosine = _fused(cosine, square, -(square * _F(0.5))) + _F(1)
    sine = _fused(_polynomial(_SIN, square) * square, x, x)
    swapped = (octant & 2) != 0
    sines, cosines = np.where(swapped, cosine, sine), np.where(swapped, sine, cosine)
    negative_sine, negative_cosine = (octant & 4) != 0, (~(octant - 2) & 4) != 0
    return np.where(negative_sine, -sines, sines), np.where(negative_cosine, -cosines, cosines)
