"""Spectra of overlapping frames, and a bank of mel filters over them."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Floats

BLOCK_FRAMES = 128
"""Frames transformed together: their doubles stay within a core's cache."""


def frames_of(samples: Floats, size: int, hop: int) -> Floats:
    """All frames that lie within the signal: a view ``[(n - size) // hop + 1, size]``."""
    return np.lib.stride_tricks.sliding_window_view(samples, size)[::hop]


def power_spectra(samples: Floats, size: int, hop: int) -> Floats:
    """Squared magnitudes of all Hann-windowed frames: ``[frames, size // 2 + 1]`` float32."""
    frames = frames_of(samples, size, hop)
    powers = np.empty((len(frames), size // 2 + 1), np.float32)
    for start in range(0, len(frames), BLOCK_FRAMES):
        spectra = np.fft.rfft(frames[start : start + BLOCK_FRAMES] * hann_window(size))
        powers[start : start + BLOCK_FRAMES] = squared(spectra)
    return powers


def squared(spectra: npt.NDArray[np.complex128]) -> npt.NDArray[np.float64]:
    """Squared magnitudes."""
    return np.square(spectra.real) + np.square(spectra.imag)


@cache
def hann_window(size: int) -> Floats:
    """One period of it, float32 ``[size]``. Shared between callers: don't write to it."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.float32)


# Slaney, Auditory Toolbox (1998): 200/3 Hz per mel up to 1 kHz, then 27 mels per factor of 6.4.
LINEAR_HZ_PER_MEL = 200.0 / 3.0
LOG_START_HZ = 1000.0
LOG_STEP = math.log(6.4) / 27.0
LOG_START_MEL = LOG_START_HZ / LINEAR_HZ_PER_MEL


@cache
def slaney_filters(rate: int, fft_size: int, bins: int, high_hz: float) -> Floats:
    """Triangles of unit area from 0 to ``high_hz``: [bins, fft_size // 2 + 1] float32.

    Shared between callers: don't write to it.
    """
    edges = _mel_to_hz(np.linspace(0.0, _hz_to_mel(high_hz), bins + 2))[:, None]
    frequencies = np.linspace(0.0, rate / 2, fft_size // 2 + 1)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (frequencies - left) / (centre - left)
    falling = (right - frequencies) / (right - centre)
    triangles = np.maximum(np.minimum(rising, falling), 0.0)
    return (triangles * 2.0 / (right - left)).astype(np.float32)


def _hz_to_mel(hz: float) -> float:
    if hz < LOG_START_HZ:
        return hz / LINEAR_HZ_PER_MEL
    return LOG_START_MEL + math.log(hz / LOG_START_HZ) / LOG_STEP


def _mel_to_hz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    linear = mels * LINEAR_HZ_PER_MEL
    logarithmic = LOG_START_HZ * np.exp((mels - LOG_START_MEL) * LOG_STEP)
    return np.where(mels < LOG_START_MEL, linear, logarithmic)
