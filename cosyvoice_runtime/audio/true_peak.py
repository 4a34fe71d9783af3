"""The true peak of samples: the highest value of the wave that runs through them and between them.

Four values between each two samples are computed as ITU-R BS.1770-5 says (annex 2). Its weights are multiples
of 2**-13 and samples are rounded to such of 2**-24, so that float64 holds each sum exactly, and how speech is
cut into chunks makes no difference.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Floats

Doubles = npt.NDArray[np.float64]

SAMPLE_BITS = 24
OUTER = (14, 90, -161, 272, -487, 1125, 7964, -838, 390, -218, 122, -68)
INNER = (-239, 240, -424, 730, -1364, 3810, 6388, -1641, 832, -477, 271, -155)
"""Phases 0 and 1 of the filter in annex 2, times 2**13; phases 3 and 2 are these, the last weight first."""
PHASES = np.array([OUTER, INNER, INNER[::-1], OUTER[::-1]], np.float64) / 2**13
REACH = len(OUTER) // 2
"""Samples on each side of a place between two that its value is made of."""


def peaks(samples: Doubles) -> Doubles:
    """Return the highest absolute value at and beside each sample.

    Args:
        samples: ``[REACH + n + REACH]``, with silence where nothing comes before or after.

    Returns:
        ``[n]``, the peaks from the sample before to the sample after.
    """
    rounded = np.rint(samples * 2.0**SAMPLE_BITS)
    between = np.abs([np.convolve(rounded, phase, "valid") for phase in PHASES]).max(axis=0)
    at = np.abs(rounded[REACH:-REACH])
    return np.maximum(at, np.maximum(between[:-1], between[1:])) * 2.0**-SAMPLE_BITS


def true_peak(samples: Floats) -> float:
    """Return the true peak of a whole signal, float32 ``[n]``, where full scale is 1."""
    return float(peaks(np.pad(samples.astype(np.float64), REACH)).max(initial=0.0))
