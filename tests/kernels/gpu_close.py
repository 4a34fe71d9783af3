"""Random values on the GPU, and how near the kernels' float16 must be to their plain twins."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from cosyvoice_runtime.flow.places import Places

TOLERANCE = 2e-3
"""|difference| / |expected| in float16."""


def half(*shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, device="cuda") * scale).half()


def full(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda")


def close(actual: Tensor, expected: Tensor) -> None:
    actual, expected = actual.float(), expected.float()
    assert float((actual - expected).norm() / expected.norm()) < TOLERANCE


def twice(places: Places) -> Places:
    """The same places again, for another way to write into them."""
    return dataclasses.replace(places, pages=places.pages.clone(), new_tails=places.new_tails.clone())
