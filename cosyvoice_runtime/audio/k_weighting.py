"""The K-weighting of ITU-R BS.1770: a filter that hears as a listener does, before loudness is measured.

The recommendation has its two biquads at 48 kHz alone. Those of another rate come from the analogue filters
behind them by the bilinear transform (De Man, Evaluation of Implementations of the EBU R128 Loudness
Measurement, AES 145, 2018, whose constants libebur128 and pyloudnorm have, too).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Floats

Doubles = npt.NDArray[np.float64]
Biquad = tuple[Doubles, Doubles]
"""Numerator and denominator, [3] each, the denominator with a 1 in front."""

SHELF_HZ, SHELF_DB, SHELF_Q = 1681.974450955533, 3.999843853973347, 0.7071752369554196
"""The high shelf, which stands for the head (BS.1770-5, annex 1, stage 1)."""
SHELF_EXPONENT = 0.4996667741545416
"""The power of the shelf's gain that its middle has."""
HIGH_PASS_HZ, HIGH_PASS_Q = 38.13547087602444, 0.5003270373238773
"""The revised low-frequency B curve (stage 2)."""
STATES = 4
MOST_OF_A_ROW = 88
"""Samples of which one product filters a row: of more, most weights would be of samples that come later."""


def high_shelf(rate: int) -> Biquad:
    """Return the first stage at a rate."""
    k = math.tan(math.pi * SHELF_HZ / rate)
    gain = 10 ** (SHELF_DB / 20)
    middle = gain**SHELF_EXPONENT
    a0 = 1 + k / SHELF_Q + k * k
    above, across = gain + k * k, middle * k / SHELF_Q
    numerator = np.array([above + across, 2 * (k * k - gain), above - across]) / a0
    return numerator, np.array([a0, 2 * (k * k - 1), 1 - k / SHELF_Q + k * k]) / a0


def high_pass(rate: int) -> Biquad:
    """Return the second stage at a rate."""
    k = math.tan(math.pi * HIGH_PASS_HZ / rate)
    a0 = 1 + k / HIGH_PASS_Q + k * k
    return np.array([1.0, -2.0, 1.0]), np.array([a0, 2 * (k * k - 1), 1 - k / HIGH_PASS_Q + k * k]) / a0


class KWeighting:
    """Filters one stretch of ``size`` samples after the other, each with what the last one has left.

    Args:
        rate: samples per second.
        size: samples of a stretch.
    """

    def __init__(self, rate: int, size: int) -> None:
        self._row = max(row for row in range(1, MOST_OF_A_ROW + 1) if size % row == 0)
        self._output, self._state_of_input, self._state_of_state = _products(rate, self._row)
        self._state: Doubles = np.zeros(STATES)

    def filter(self, samples: Floats) -> Doubles:
        """Filter the next stretch, float32 ``[size]``."""
        rows = samples.astype(np.float64).reshape(-1, self._row)
        left = rows @ self._state_of_input
        inputs = np.empty((len(rows), STATES + self._row))
        inputs[:, STATES:] = rows
        for number, change in enumerate(left):
            inputs[number, :STATES] = self._state
            self._state = self._state @ self._state_of_state + change
        return (inputs @ self._output).reshape(-1)


@lru_cache(maxsize=16)
def _products(rate: int, row: int) -> tuple[Doubles, Doubles, Doubles]:
    """Matrices that filter a row of samples at once.

    Returns:
        ``[STATES + row, row]``, a row's output by the state before it and by its samples; ``[row, STATES]``
        and ``[STATES, STATES]``, the state behind it by its samples and by the state before.
    """
    stages = high_shelf(rate), high_pass(rate)
    sources = np.eye(STATES + row)
    state = np.ascontiguousarray(sources[:STATES])
    output = np.empty((STATES + row, row))
    for time in range(row):
        signal = sources[STATES + time]
        for stage, (numerator, denominator) in enumerate(stages):
            first, second = 2 * stage, 2 * stage + 1
            filtered = numerator[0] * signal + state[first]
            state[first] = numerator[1] * signal - denominator[1] * filtered + state[second]
            state[second] = numerator[2] * signal - denominator[2] * filtered
            signal = filtered
        output[:, time] = signal
    return output, state.T[STATES:].copy(), state.T[:STATES].copy()
