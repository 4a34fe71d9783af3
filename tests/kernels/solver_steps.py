"""Steps of the solver of each kind, over random numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cosyvoice_runtime.flow.kernels.last_layer import SolverStep

KINDS = pytest.mark.parametrize(
    ("rate", "slope"),
    [(0.7, None), (0.7, 0.5), (0.7, 0.0), (0.0, None), (0.0, 0.6)],
    ids=["euler", "adams_bashforth", "its first step", "without guidance", "both"],
)


def random_step(rows: int, bins: int, rate: float, slope: float | None) -> SolverStep:
    """A step over ``rows`` frames; where its slope is 0, the velocity before is no number."""
    mel, packed = torch.randn(rows, bins), torch.randn((2 if rate else 1) * rows, 80)
    if slope is None:
        return SolverStep(torch.tensor([0.3]), rate, mel, packed)
    before = torch.randn(rows, bins) if slope else torch.full((rows, bins), torch.nan)
    return SolverStep(torch.tensor([0.3]), rate, mel, packed, torch.tensor([slope]), before)


def check(step: SolverStep, expected: SolverStep, same: Callable[[Tensor, Tensor], None]) -> None:
    same(step.mel, expected.mel)
    same(step.packed, expected.packed)
    if step.before is not None and expected.before is not None:
        same(step.before, expected.before)
