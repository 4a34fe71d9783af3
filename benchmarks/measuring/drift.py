"""The traits of a voice, measured in the segments of a long text and from each one to the next.

Differences across a join compare the second half of a segment with the first half of the next one;
differences within a segment compare its halves. So both compare stretches of the same length that touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from statistics import mean, stdev

import numpy as np
import torch

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.audio.loudness import LoudnessMeter
from cosyvoice_runtime.audio.silence import AUDIBLE_RMS
from demo_voice.training.f0 import track_f0
from measuring.figures import Figures
from measuring.likeness import SpeakerLikeness

FRAME_S = 0.01
SMOOTH = 5
"""Frames over which a level is averaged before its peaks are syllables: 50 ms."""
DIP_DB = 2.0
"""The least dip between two syllables, as in de Jong and Wempe, Behavior Research Methods 41 (2009)."""
QUIET_DB = 25.0
"""Frames so far below a loud one (the 95th percentile) are no speech."""


@dataclass(frozen=True)
class Traits:
    """The traits of a voice in one stretch of speech.

    Attributes:
        pitch: median F0, in semitones above 1 Hz.
        loudness: LUFS.
        rate: syllables a second of speech without its pauses.
        embedding: of the speaker, float32 ``[D]``, of length 1.
    """

    pitch: float
    loudness: float
    rate: float
    embedding: Floats


@dataclass(frozen=True)
class Spoken:
    """One segment: its two halves, and the silence at its ends in seconds."""

    halves: tuple[Traits, Traits]
    before_s: float
    behind_s: float


class Drift:
    """Measures segments of speech."""

    def __init__(self, likeness: SpeakerLikeness) -> None:
        self._likeness = likeness

    def spoken(self, samples: Floats, rate: int) -> Spoken:
        """Measure a segment, float32 ``[n]``."""
        begin, end = speech_ends(samples, rate)
        half = (begin + end) // 2
        first, second = (self.traits(part, rate) for part in (samples[begin:half], samples[half:end]))
        return Spoken((first, second), begin / rate, (len(samples) - end) / rate)

    def traits(self, samples: Floats, rate: int) -> Traits:
        """Measure a stretch of speech."""
        f0 = track_f0(torch.from_numpy(samples), rate)
        voiced = f0[f0 > 0]
        pitch = 12 * voiced.log2().median().item() if len(voiced) else float("nan")
        embedding = self._likeness.embedding(samples, rate)
        meter = LoudnessMeter(rate)
        meter.push(samples)
        return Traits(pitch, meter.integrated, syllable_rate(samples, rate), embedding)


def differences(pairs: Sequence[tuple[Traits, Traits]]) -> Figures:
    """Mean absolute differences between the two of each pair, and their standard errors, by trait.

    Those of embeddings are one less the cosine. A pair with a stretch without pitch has none of pitch.
    """
    found = {
        "pitch_semitones": [abs(a.pitch - b.pitch) for a, b in pairs],
        "loudness_lu": [abs(a.loudness - b.loudness) for a, b in pairs],
        "rate_syllables_a_second": [abs(a.rate - b.rate) for a, b in pairs],
        "embedding_distance": [1 - float(a.embedding @ b.embedding) for a, b in pairs],
    }
    return {name: _mean([value for value in values if isfinite(value)]) for name, values in found.items()}


def _mean(values: Sequence[float]) -> tuple[float, float] | None:
    """The mean and its standard error; None of fewer than two values."""
    return (round(mean(values), 4), round(stdev(values) / len(values) ** 0.5, 4)) if len(values) > 1 else None


def across_and_within(segments: Sequence[Spoken]) -> tuple[Figures, Figures]:
    """The differences across joins, and those within segments."""
    joins = [(one.halves[1], two.halves[0]) for one, two in pairwise(segments)]
    return differences(joins), differences([segment.halves for segment in segments])


def speech_ends(samples: Floats, rate: int) -> tuple[int, int]:
    """The samples at which the first audible frame begins and the last one ends; all if none is."""
    size = round(rate * FRAME_S)
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    heard = np.flatnonzero(np.sqrt(np.square(frames, dtype=np.float64).mean(1)) >= AUDIBLE_RMS)
    return (heard[0] * size, (heard[-1] + 1) * size) if len(heard) else (0, len(samples))


def syllable_rate(samples: Floats, rate: int) -> float:
    """Peaks of the level a second of speech: each syllable's vowel makes one. 0 where there is no speech."""
    level = _level_db(samples, rate)
    floor = float(np.percentile(level, 95)) - QUIET_DB
    spoken_s = int((level > floor).sum()) * FRAME_S
    return _peaks(level, floor) / spoken_s if spoken_s else 0.0


def _level_db(samples: Floats, rate: int) -> Array:
    """The level of each frame, dB ``[frames]``."""
    size = round(rate * FRAME_S)
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    power = np.square(frames, dtype=np.float64).mean(1)
    level: Array = 10 * np.log10(np.convolve(power, np.full(SMOOTH, 1 / SMOOTH), "same") + 1e-9)
    return level


def _peaks(level: Array, floor: float) -> int:
    """The maxima above a floor with a dip between each two of them."""
    count, rises, turn = 0, False, level[0]
    for value in level:
        turn = max(turn, value) if rises else min(turn, value)
        if rises and value < turn - DIP_DB:
            count, rises, turn = count + int(turn > floor), False, value
        elif not rises and value > turn + DIP_DB:
            rises, turn = True, value
    return count + int(rises and turn > floor)
