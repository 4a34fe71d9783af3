"""The loudness of speech, in LUFS, by ITU-R BS.1770."""

from __future__ import annotations

import math

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.k_weighting import KWeighting

STEPS_PER_S = 10
"""Blocks of 400 ms overlap by three quarters (BS.1770-5, annex 1), so that one begins each 100 ms."""
STEPS_OF_A_BLOCK = 4
OFFSET = -0.691
"""Decibels that make a sine of 997 Hz at full scale -3.01 LUFS."""
ABSOLUTE_GATE = -70.0
RELATIVE_GATE = -10.0
"""LUFS and LU below which a block doesn't count: by itself, and beside the mean of those that do."""


class LoudnessMeter:
    """Measures mono speech while it comes; how it is cut into chunks makes no difference.

    Attributes:
        step: samples of 100 ms, after which there is a new measurement.
    """

    def __init__(self, rate: int) -> None:
        self.step = round(rate / STEPS_PER_S)
        self._weighting = KWeighting(rate, self.step)
        self._held = np.zeros(0, np.float32)
        self._steps: list[float] = []
        self._blocks: list[float] = []

    def push(self, samples: Floats) -> None:
        """Take the next samples, float32 ``[n]``; a step counts when it is whole."""
        self._held = np.concatenate([self._held, samples])
        while len(self._held) >= self.step:
            step, self._held = self._held[: self.step], self._held[self.step :]
            self._steps.append(float(np.square(self._weighting.filter(step)).mean()))
            if len(self._steps) >= STEPS_OF_A_BLOCK:
                self._blocks.append(math.fsum(self._steps[-STEPS_OF_A_BLOCK:]) / STEPS_OF_A_BLOCK)

    @property
    def integrated(self) -> float:
        """The integrated loudness of all whole blocks, or before the first one of what there is.

        -inf where nothing is above the absolute gate.
        """
        powers = np.array(self._blocks or [math.fsum(self._steps) / max(1, len(self._steps))])
        heard = powers[powers > _power(ABSOLUTE_GATE)]
        if not len(heard):
            return -math.inf
        gate = _loudness(float(heard.mean())) + RELATIVE_GATE
        return _loudness(float(heard[heard > _power(gate)].mean()))

    @property
    def is_silent(self) -> bool:
        """Whether the last step is below the absolute gate, or 10 LU below the integrated loudness."""
        gate = max(ABSOLUTE_GATE, self.integrated + RELATIVE_GATE)
        return not self._steps or self._steps[-1] <= _power(gate)


def _loudness(power: float) -> float:
    return OFFSET + 10 * math.log10(power)


def _power(loudness: float) -> float:
    return float(10 ** ((loudness - OFFSET) / 10))
