"""Signals with the loudness of speech."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def tone(hz: float, seconds: float, rate: int, amplitude: float = 0.3) -> Tensor:
    time = torch.arange(round(seconds * rate), dtype=torch.float64) / rate
    return (amplitude * torch.sin(2 * math.pi * hz * time)).float()


def noise(samples: int, seed: int = 0, scale: float = 0.1) -> Tensor:
    return scale * torch.randn(samples, generator=torch.Generator().manual_seed(seed))
