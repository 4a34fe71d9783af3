"""G.711, the telephone's encoding of a sample in 8 bits (ITU-T Recommendation G.711, 1988)."""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

Law = Literal["ulaw", "alaw"]
RATE = 8_000
"""Samples per second of G.711."""
ULAW_BIAS = 33
"""Half steps by which the segments of the mu-law are shifted."""
EVEN_BITS = 0x55
"""Bits that the A-law inverts on the line."""


def encode(law: Law, samples: npt.NDArray[np.int16]) -> bytes:
    """Encode 16-bit samples ``[n]`` to as many bytes."""
    return _codes(law)[samples.astype(np.uint16)].tobytes()


@cache
def _codes(law: Law) -> npt.NDArray[np.uint8]:
    """The code of each sample, which is the index as 16 bits without a sign.

    A negative sample has the number of its one's complement, as in the programs of ITU-T G.191.
    """
    numbers = np.searchsorted(_thresholds(law), np.arange(1 << 15), side="right").astype(np.uint8)
    signed = np.concatenate([numbers | 0x80, numbers[::-1]])
    return signed ^ np.uint8(0x7F if law == "ulaw" else EVEN_BITS)


def _thresholds(law: Law) -> npt.NDArray[np.int64]:
    """Magnitudes of 16-bit samples at which the 127 codes above the first one begin.

    Each of 8 segments has 16 equal steps. Those of the mu-law double from segment to segment, and those of
    the A-law from the second one on.
    """
    segment, step = np.divmod(np.arange(1, 128), 16)
    if law == "ulaw":
        return 4 * (((2 * step + 32) << segment) - ULAW_BIAS)
    return 16 * np.where(segment == 0, step, (step + 16) << np.maximum(segment - 1, 0))
