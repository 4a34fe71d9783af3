"""Sample rate conversion by a Hann-windowed sinc, as the checkpoint's training data was converted."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from cosyvoice_runtime.arrays import Floats

# torchaudio's defaults, which upstream's front end uses: zero crossings on each side of the kernel, and
# the cutoff as a share of the lower Nyquist frequency.
ZERO_CROSSINGS = 6
ROLLOFF = 0.99


PHASES_AT_ONCE = 16
"""Outputs beside each other that one product makes; of more, most weights of it would be zeros."""
ROWS_AT_ONCE = 4096
"""Windows copied side by side for one product."""


def resample(samples: Floats, rate: int, new_rate: int) -> Floats:
    """Convert [n] float32 at ``rate`` to [ceil(n * new_rate / rate)] float32 at ``new_rate``.

    Outside the signal is silence. Any pair of rates works; an unusual ratio only has a larger table
    of kernels.
    """
    if rate == new_rate:
        return samples
    divisor = math.gcd(rate, new_rate)
    step, phases = rate // divisor, new_rate // divisor
    length = math.ceil(samples.shape[0] * phases / step)
    kernels = _kernels(step, phases)
    taps = kernels.shape[1]
    padded = np.pad(samples, (taps // 2 - 1, taps + step))
    output = np.empty((math.ceil(length / phases), phases), np.float32)
    for phase in range(0, min(phases, length), PHASES_AT_ONCE):
        weights = _joined(kernels, phase, step)
        # The outputs phase, phase + phases, ... lie ``step`` inputs apart.
        start = phase * step // phases
        windows = np.lib.stride_tricks.sliding_window_view(padded[start:], len(weights))[::step]
        for row in range(0, len(output), ROWS_AT_ONCE):
            block = output[row : row + ROWS_AT_ONCE, phase : phase + PHASES_AT_ONCE]
            block[:] = np.ascontiguousarray(windows[row : row + len(block)]) @ weights
    return output.reshape(-1)[:length]


def _joined(kernels: Floats, phase: int, step: int) -> Floats:
    """Kernels of the phases from ``phase`` on, side by side, over all their inputs: [inputs, phases]."""
    phases, taps = kernels.shape
    chosen = kernels[phase : phase + PHASES_AT_ONCE]
    starts = np.arange(phase, phase + len(chosen)) * step // phases - phase * step // phases
    joined = np.zeros((starts[-1] + taps, len(chosen)), np.float32)
    for column, (start, kernel) in enumerate(zip(starts, chosen, strict=True)):
        joined[start : start + taps, column] = kernel
    return joined


@lru_cache(maxsize=16)
def _kernels(step: int, phases: int) -> Floats:
    """Interpolation kernels [phases, taps]; tap ``taps // 2 - 1`` weighs the sample before the output."""
    cutoff = ROLLOFF * min(1.0, phases / step)
    half = math.ceil(ZERO_CROSSINGS / cutoff) + 1
    offsets = np.arange(1 - half, half + 1, dtype=np.float64)
    fractions = np.arange(phases, dtype=np.float64) * step % phases / phases
    time = np.clip(cutoff * (offsets - fractions[:, None]), -ZERO_CROSSINGS, ZERO_CROSSINGS)
    window = np.square(np.cos(time * (math.pi / 2 / ZERO_CROSSINGS)))
    return (cutoff * np.sinc(time) * window).astype(np.float32)
