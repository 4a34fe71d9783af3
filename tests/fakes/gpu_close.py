"""Random values on the GPU, and how near the kernels' float16 must be to their plain twins."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

TOLERANCE = 2e-3
"""|difference| / |expected| in float16."""

CALLS = pytest.mark.parametrize(
    ("before", "lengths"),
    [([4], [50]), ([0, 3, 21], [50, 14, 36]), ([1, 0], [120, 50])],
    ids=["one", "uneven", "blocks"],
)
"""Finished pages and new frames of each utterance."""


def half(*shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, device="cuda") * scale).half()


def full(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda")


def close(actual: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    actual, expected = actual.float(), expected.float()
    assert float((actual - expected).norm() / expected.norm()) < tolerance
