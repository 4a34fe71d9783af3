"""Fundamental frequency by normalised autocorrelation (the idea of RAPT, Talkin 1995)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW = 1200
"""50 ms at 24 kHz."""
HOP = 480
LOWEST_HZ, HIGHEST_HZ = 60.0, 420.0
VOICED = 0.55
"""Least correlation of a voiced frame."""
QUIET = 1e-3
"""RMS below which nothing is voiced."""
FIRST_PEAK = 0.88
"""A peak at a shorter lag wins if it reaches this share of the highest: against octave errors."""


def track_f0(samples: Tensor, rate: int = 24_000) -> Tensor:
    """F0 in Hz, 0 where unvoiced: [n // 480] float32 of [n] samples, at the centres of the mel's frames."""
    frames = samples.shape[0] // HOP
    margin = (WINDOW - HOP) // 2
    windows = F.pad(samples, (margin, margin)).unfold(0, WINDOW, HOP)[:frames]
    windows = windows - windows.mean(1, keepdim=True)
    shortest, longest = int(rate / HIGHEST_HZ), int(rate / LOWEST_HZ)
    correlation = _correlation(windows, longest + 2)
    values, lags = _first_peak(correlation[:, shortest - 1 :])
    lags = lags + shortest - 1
    voiced = (values > VOICED) & (windows.square().mean(1).sqrt() > QUIET)
    return _without_outliers(torch.where(voiced, rate / lags, torch.zeros_like(lags)))


def _correlation(windows: Tensor, lags: int) -> Tensor:
    """Normalised by the energies of the two overlapping parts: [T, lags]."""
    size = windows.shape[1]
    spectrum = torch.fft.rfft(windows, 2 * size)
    products = torch.fft.irfft(spectrum.abs().square(), 2 * size)[:, :lags]
    energy = F.pad(windows.square().cumsum(1), (1, 0))
    lag = torch.arange(lags, device=windows.device)
    first, last = energy[:, size - lag], energy[:, -1:] - energy[:, lag]
    return products / (first * last).sqrt().clamp(min=1e-7)


def _first_peak(correlation: Tensor) -> tuple[Tensor, Tensor]:
    """Height and refined place of the first high local maximum, places counted from column 0."""
    left, middle, right = correlation[:, :-2], correlation[:, 1:-1], correlation[:, 2:]
    heights = torch.where((middle >= left) & (middle > right), middle, torch.zeros_like(middle))
    best = heights.amax(1, keepdim=True)
    place = (heights >= FIRST_PEAK * best).float().argmax(1, keepdim=True)
    a, b, c = (x.gather(1, place)[:, 0] for x in (left, middle, right))
    shift = 0.5 * (a - c) / (a - 2 * b + c).clamp(max=-1e-7)
    return heights.gather(1, place)[:, 0], place[:, 0] + 1 + shift.clamp(-0.5, 0.5)


def _without_outliers(f0: Tensor) -> Tensor:
    """Median of three neighbours: single wrong frames disappear."""
    return F.pad(f0[None], (1, 1), mode="replicate")[0].unfold(0, 3, 1).median(1).values
