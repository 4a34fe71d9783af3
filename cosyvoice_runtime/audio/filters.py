"""Mel filter bank in Slaney's form."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

# Slaney, Auditory Toolbox (1998): 200/3 Hz per mel up to 1 kHz, then 27 mels per factor of 6.4.
LINEAR_HZ_PER_MEL = 200.0 / 3.0
LOG_START_HZ = 1000.0
LOG_STEP = math.log(6.4) / 27.0
LOG_START_MEL = LOG_START_HZ / LINEAR_HZ_PER_MEL


@cache
def slaney_filters(rate: int, fft_size: int, bins: int, high_hz: float) -> Tensor:
    """Triangles of unit area from 0 to ``high_hz``: [bins, fft_size // 2 + 1] float32.

    Shared between callers: don't write to it.
    """
    edges = _mel_to_hz(torch.linspace(0.0, _hz_to_mel(high_hz), bins + 2, dtype=torch.float64))[:, None]
    frequencies = torch.linspace(0.0, rate / 2, fft_size // 2 + 1, dtype=torch.float64)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (frequencies - left) / (centre - left)
    falling = (right - frequencies) / (right - centre)
    triangles = torch.minimum(rising, falling).clamp(min=0.0)
    return (triangles * 2.0 / (right - left)).float()


def _hz_to_mel(hz: float) -> float:
    if hz < LOG_START_HZ:
        return hz / LINEAR_HZ_PER_MEL
    return LOG_START_MEL + math.log(hz / LOG_START_HZ) / LOG_STEP


def _mel_to_hz(mels: Tensor) -> Tensor:
    linear = mels * LINEAR_HZ_PER_MEL
    logarithmic = LOG_START_HZ * torch.exp((mels - LOG_START_MEL) * LOG_STEP)
    return torch.where(mels < LOG_START_MEL, linear, logarithmic)
