"""A GPU that all utterances in progress share: how many there are, and how soon they begin.

Utterances come by themselves, at any rate and of any length. The share of the time in which k of them are
in progress is the product of demand / speed with 1 to k of them, the stationary law of processor sharing, and
the length of utterances does not matter. Who comes while k are in progress hears first audio as one of k + 1
who ask again and again, which was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import erf, sqrt
from statistics import NormalDist

import numpy as np

from measuring.figures import PERCENTILES
from measuring.speed_curve import Curve, Floats

EARLIEST_MS, LATEST_MS, MOMENTS = 5.0, 50_000.0, 1_000
STEPS = 40
"""Halvings of the range in which the greatest demand is looked for."""


@dataclass(frozen=True)
class State:
    """
    A GPU with a demand that lasts.

    Attributes:
        in_progress: utterances, on average.
        refused: share of the requests.
        first_audio_ms: p50 and p95 of those that are admitted.
    """

    in_progress: float
    refused: float
    first_audio_ms: tuple[float, float]


class SharedGpu:
    """
    One machine of the curve.

    Args:
        curve: measured speed and first audio.
        places: utterances at once; one more is refused.
    """

    def __init__(self, curve: Curve, places: int) -> None:
        self._counts = np.arange(1.0, places + 1)
        self._curve, self._speeds = curve, curve.speeds(self._counts)
        self._moments = np.linspace(np.log(EARLIEST_MS), np.log(LATEST_MS), MOMENTS)

    @property
    def peak(self) -> float:
        """The greatest speed, in seconds of speech a second."""
        return float(self._speeds.max())

    def in_progress(self, demand: float) -> Floats:
        """Share of the time with 0, 1, ... places utterances, for seconds of speech asked for a second."""
        weights = np.concatenate([[0.0], np.cumsum(np.log(demand) - np.log(self._speeds))])
        shares = np.exp(weights - weights.max())
        return shares / shares.sum()

    def state(self, demand: float) -> State:
        """The state that a demand leads to, in seconds of speech asked for a second."""
        shares = self.in_progress(demand)
        admitted = shares[:-1] / shares[:-1].sum()
        first_audio = np.exp(np.interp((0.5, 0.95), admitted @ self._begun, self._moments))
        return State(
            float(shares @ np.arange(len(shares))),
            float(shares[-1]),
            (float(first_audio[0]), float(first_audio[1])),
        )

    def most(self, ttfb_p95_ms: float, refused: float) -> float:
        """The greatest demand that keeps both limits, in seconds of speech a second; 0 if none does."""
        least, most = 0.0, self.peak
        for _ in range(STEPS):
            demand = (least + most) / 2
            state = self.state(demand)
            keeps = state.first_audio_ms[1] <= ttfb_p95_ms and state.refused <= refused
            least, most = (demand, most) if keeps else (least, demand)
        return least if least > self.peak / 2 ** (STEPS / 2) else 0.0

    @cached_property
    def _begun(self) -> Floats:
        """[places, moments]: share of those that begin as one of 1, 2, ... with first audio by then."""
        return np.stack([shares_begun(row, self._moments) for row in self._curve.first_audio(self._counts)])


def shares_begun(percentiles: Floats, moments: Floats) -> Floats:
    """Distribution through percentiles: between them and beyond, deviations of a normal one are linear.

    Args:
        percentiles: values at :data:`measuring.figures.PERCENTILES`, rising.
        moments: where it is asked for.
    """
    deviations = np.array([NormalDist().inv_cdf(percentile / 100) for percentile in PERCENTILES])
    slopes = np.diff(deviations) / np.diff(percentiles)
    found = np.interp(moments, percentiles, deviations)
    found = np.where(moments < percentiles[0], deviations[0] + (moments - percentiles[0]) * slopes[0], found)
    late = deviations[-1] + (moments - percentiles[-1]) * slopes[-1]
    found = np.where(moments > percentiles[-1], late, found)
    return np.array([(1 + erf(deviation / sqrt(2))) / 2 for deviation in found])
