"""What float32 rounding in F0 does to a waveform, as a measure for comparisons with a reference.

The phase is a running sum of F0, so rounding in F0, which differs from machine to machine, moves the waveform
by more than the tolerance of the parts. How far the sample that moves farthest moves is chance; the root mean
square is not, so that is what is measured and compared.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from goldens import Compare
from torch import Tensor

F0_ROUNDING = 1e-6
"""Relative to the largest F0, a difference of larger terms after five layers of float32."""
DRAWS = 4
FACTOR = 2
"""Between the reference and this code lie two roundings: its own, and ours."""


def rms(difference: Tensor) -> float:
    return difference.double().square().mean().sqrt().item()


def rounded(f0: Tensor, seed: int) -> Tensor:
    """F0 moved within its rounding."""
    draw = 2 * torch.rand(f0.shape, generator=torch.Generator().manual_seed(seed)) - 1
    return f0 + F0_ROUNDING * f0.max() * draw


def rounding_effect(wave: Tensor, wave_of_draw: Callable[[int], Tensor]) -> float:
    """Root mean square of what rounding in F0 changes; ``wave_of_draw`` gives the waveform with it."""
    return rms(torch.stack([wave_of_draw(seed) - wave for seed in range(DRAWS)]))


def compare_waves(
    compare: Compare, name: str, wave: Tensor, expected: Tensor, effect: float, tolerance: float
) -> None:
    """Same shape, and no farther apart than rounding in F0 takes them, or ``tolerance`` if that is more."""
    assert wave.shape == expected.shape, name
    difference = torch.tensor(rms(wave - expected))
    compare(f"{name} rms", difference, torch.tensor(0.0), max(tolerance, FACTOR * effect))
