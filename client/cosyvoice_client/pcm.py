"""Samples as 16-bit integers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FULL_SCALE = 32768


def pcm16(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
    """Little-endian 16-bit samples; beyond full scale they clip."""
    return np.clip(np.rint(samples * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype("<i2")
