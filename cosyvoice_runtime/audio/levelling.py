"""Speech brought to a loudness that a listener asks for, its true peak below -1 dBFS.

A whole answer is measured, gets one gain and goes through the limiter. A stream gets a slow gain, which
begins at one and moves towards the target by what has been heard so far, so that how the speech is cut into
chunks makes no difference.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.limiter import Limiter
from cosyvoice_runtime.audio.loudness import STEPS_PER_S, LoudnessMeter
from cosyvoice_runtime.errors import InvalidInput

LOUDEST, SOFTEST = -10.0, -40.0
"""Targets that can be asked for, in LUFS."""
MOST_GAIN_DB = 24.0
"""The most that speech is raised, so that an answer of noise stays one."""
DB_PER_S = 6.0
"""How fast the gain of a stream moves, and only while there is speech."""


def check_target(target_lufs: float) -> None:
    """Raise InvalidInput for a target outside -40 to -10 LUFS."""
    if not SOFTEST <= target_lufs <= LOUDEST:
        raise InvalidInput("target_lufs", target_lufs, f"a number from {SOFTEST:g} to {LOUDEST:g}")


class Leveller(Protocol):
    """Changes how loud mono speech of one rate is.

    Attributes:
        delay_s: the longest time for which a sample is held back, in seconds.
    """

    delay_s: float

    def push(self, samples: Floats) -> Floats:
        """Take the next samples, float32 ``[n]``, and return those that are certain, ``[m]``."""

    def finish(self) -> Floats:
        """Return the rest: all together are as many as were pushed."""


def make_leveller(rate: int, target_lufs: float, *, whole: bool) -> Leveller:
    """Return what brings one answer to a loudness.

    Args:
        rate: samples per second.
        target_lufs: the loudness, -40 to -10 LUFS.
        whole: whether the answer is held back to its end, so that all of it gets one gain.
    """
    return WholeLeveller(rate, target_lufs) if whole else StreamLeveller(rate, target_lufs)


class WholeLeveller:
    """Measures all of an answer, and gives it at its end."""

    delay_s = math.inf

    def __init__(self, rate: int, target_lufs: float) -> None:
        self._rate = rate
        self._target = target_lufs
        self._chunks: list[Floats] = []

    def push(self, samples: Floats) -> Floats:
        self._chunks.append(samples)
        return samples[:0]

    def finish(self) -> Floats:
        meter, limiter = LoudnessMeter(self._rate), Limiter(self._rate)
        for chunk in self._chunks:
            meter.push(chunk)
        gain = _amplitude(_wanted_db(self._target, meter.integrated))
        levelled = [limiter.push(chunk.astype(np.float64) * gain) for chunk in self._chunks]
        return np.concatenate([*levelled, limiter.finish()])


class StreamLeveller:
    """Gives speech on with a gain that moves by at most 6 dB a second.

    The gain of each 100 ms is a straight line between two values that are known at their beginning, so that
    only the limiter holds samples back.
    """

    def __init__(self, rate: int, target_lufs: float) -> None:
        self._target = target_lufs
        self._meter = LoudnessMeter(rate)
        self._limiter = Limiter(rate)
        self.delay_s = self._limiter.delay_s
        self._line = np.arange(self._meter.step) / self._meter.step
        self._place = 0
        self._gain_db = 0.0
        self._from = self._to = 1.0

    def push(self, samples: Floats) -> Floats:
        parts = np.split(samples, range(self._meter.step - self._place, len(samples), self._meter.step))
        return self._limiter.push(np.concatenate([self._levelled(part) for part in parts]))

    def finish(self) -> Floats:
        return self._limiter.finish()

    def _levelled(self, samples: Floats) -> npt.NDArray[np.float64]:
        """Level samples that end with the step or before."""
        line = self._line[self._place : self._place + len(samples)]
        levelled = samples.astype(np.float64) * (self._from + (self._to - self._from) * line)
        self._meter.push(samples)
        self._place += len(samples)
        if self._place == self._meter.step:
            self._place = 0
            self._from, self._to = self._to, self._next()
        return levelled

    def _next(self) -> float:
        """Return the gain at which the step that begins will end; in silence it stays."""
        if not self._meter.is_silent:
            most = DB_PER_S / STEPS_PER_S
            missing = _wanted_db(self._target, self._meter.integrated) - self._gain_db
            self._gain_db += max(-most, min(most, missing))
        return _amplitude(self._gain_db)


def _wanted_db(target_lufs: float, loudness: float) -> float:
    """Return the gain from a loudness to a target; nothing heard is left as it is."""
    return 0.0 if loudness == -math.inf else min(MOST_GAIN_DB, target_lufs - loudness)


def _amplitude(decibels: float) -> float:
    return float(10 ** (decibels / 20))
