"""Loudness of speech in LUFS, by ITU-R BS.1770-4 for one channel."""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.audio.resample import resample

RATE = 48_000
"""The rate for which the standard gives its filters' coefficients."""
FILTERS = (
    ((1.53512485958697, -2.69169618940638, 1.19839281085285), (1.0, -1.69065929318241, 0.73248077421585)),
    ((1.0, -2.0, 1.0), (1.0, -1.99004745483398, 0.99007225036621)),
)
"""Numerators and denominators of the two stages of the K-weighting (tables 1 and 2 of the standard)."""
BLOCK_S, STEP_S = 0.4, 0.1
"""Length of the blocks whose loudness is gated, and the time from one to the next."""
OFFSET = -0.691
ABSOLUTE_LUFS, RELATIVE_LU = -70.0, -10.0
"""The two gates: blocks that are quieter don't count."""
SETTLING = 4800
"""Samples of silence behind the sound, in which the filters' answer ends: 0.1 s."""


def loudness(samples: Floats, rate: int) -> float:
    """The integrated loudness in LUFS of samples ``[n]`` in [-1, 1]; -inf where all are silent.

    What is shorter than a block is filled with silence.
    """
    powers = _block_powers(_weighted(resample(samples, rate, RATE)))
    kept = powers[_lufs(powers) > ABSOLUTE_LUFS]
    if not len(kept):
        return -np.inf
    kept = kept[_lufs(kept) > _lufs(kept.mean()) + RELATIVE_LU]
    return float(_lufs(kept.mean()))


def _weighted(samples: Floats) -> Array:
    """The samples behind both filters, float64 of a power of two."""
    size = 1 << (len(samples) + SETTLING - 1).bit_length()
    delay = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
    spectrum = np.fft.rfft(samples.astype(np.float64), size)
    for above, below in FILTERS:
        spectrum *= np.polyval(above[::-1], delay) / np.polyval(below[::-1], delay)
    return np.fft.irfft(spectrum, size)[: len(samples)]


def _block_powers(samples: Array) -> Array:
    size, step = round(BLOCK_S * RATE), round(STEP_S * RATE)
    energy = np.concatenate([[0.0], np.cumsum(np.pad(samples, (0, max(0, size - len(samples)))) ** 2)])
    starts = np.arange(0, len(energy) - size, step)
    powers: Array = (energy[starts + size] - energy[starts]) / size
    return powers


def _lufs(power: Array | float) -> Array:
    level: Array = OFFSET + 10 * np.log10(np.maximum(power, 1e-20))
    return level
