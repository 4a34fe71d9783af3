"""A limiter that keeps the true peak of speech below a ceiling, while the speech streams."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.true_peak import REACH, peaks

Doubles = npt.NDArray[np.float64]
Gains = npt.NDArray[np.int64]

CEILING = 10 ** (-1.2 / 20)
"""The true peak that gains aim at: -1 dBFS, less what the wave between samples gains while a gain moves."""
ATTACK_S = 0.0015
"""Seconds before a peak in which the gain falls. So long is speech held back, and six samples more."""
RECOVERY_PER_S = 5.0
"""Rise of the gain behind a peak: from a half to one in 100 ms."""
FULL = 1 << 24
"""A gain of one. Gains are whole numbers, so that sums of them don't depend on their order."""


class Limiter:
    """Lowers mono speech around peaks and leaves the rest as it is; how it is cut makes no difference.

    The gain of a sample is a mean of the least ones around it (a minimum, then a moving average of the same
    length), so that it never is above what the sample itself needs.

    Args:
        rate: samples per second.

    Attributes:
        delay_s: the longest time for which a sample is held back, in seconds.
    """

    def __init__(self, rate: int) -> None:
        self._ahead = round(rate * ATTACK_S)
        self.delay_s = (REACH + self._ahead) / rate
        self._rise = round(RECOVERY_PER_S * FULL / rate)
        self._wave: Doubles = np.zeros(REACH)
        self._held: Doubles = np.zeros(0)
        self._least, self._position = FULL, 0
        self._gains: Gains = np.full(self._ahead, FULL, np.int64)

    def push(self, samples: Doubles) -> Floats:
        """Take the next samples, float64 ``[n]``, and return those that are certain, float32 ``[m]``."""
        self._held = np.concatenate([self._held, samples])
        self._wave = np.concatenate([self._wave, samples])
        if len(self._wave) <= 2 * REACH:
            return np.zeros(0, np.float32)
        new = self._recovering(_needed(peaks(self._wave)))
        self._wave = self._wave[-2 * REACH :]
        self._gains = np.concatenate([self._gains, new])
        return self._apply(len(self._gains) - 2 * self._ahead)

    def finish(self) -> Floats:
        """Return the rest."""
        length = len(self._held)
        return self.push(np.zeros(REACH + self._ahead))[:length]

    def _recovering(self, needed: Gains) -> Gains:
        """Return gains that rise behind a low one only so fast: the least line through all before."""
        rising = self._rise * np.arange(self._position, self._position + len(needed))
        lines = np.minimum.accumulate(np.concatenate([[self._least], needed - rising]))
        self._least, self._position = int(lines[-1]), self._position + len(needed)
        return lines[1:] + rising

    def _apply(self, count: int) -> Floats:
        """Give the next samples, whose gains are known as far as they look ahead.

        ``_gains`` begin as far before the first of these samples.
        """
        if count <= 0:
            return np.zeros(0, np.float32)
        width = self._ahead + 1
        lowest = np.lib.stride_tricks.sliding_window_view(self._gains, width).min(axis=1)
        sums = np.cumsum(np.concatenate([[0], lowest]))
        gains = (sums[width:] - sums[:-width]) / (width * FULL)
        given, self._held, self._gains = self._held[:count] * gains, self._held[count:], self._gains[count:]
        return given.astype(np.float32)


def _needed(peaks: Doubles) -> Gains:
    """Return the gains that bring peaks below the ceiling."""
    return np.floor(FULL * np.minimum(1.0, CEILING / np.maximum(peaks, CEILING))).astype(np.int64)
