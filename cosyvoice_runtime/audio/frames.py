"""Stretches of a signal that overlap, and their spectra."""

from __future__ import annotations

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
