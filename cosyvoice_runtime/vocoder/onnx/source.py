"""The harmonic source of the vocoder in numpy; mirrors :mod:`cosyvoice_runtime.vocoder.torch.source`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import pi, prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.families import load, vocoder_parts
from cosyvoice_runtime.onnx.torch_random import TorchRandom
from cosyvoice_runtime.vocoder.state import (
    LAYERS,
    SOLVER_NOISE,
    STEP,
    TOKEN_TABLE,
    FixedNoise,
    NoiseTable,
    SourceNoise,
    UtteranceNoise,
)


def table_values(weight: Floats) -> Iterator[Floats]:
    """Values of :class:`NoiseTable`, ``[STEP]`` at a time, from a numpy generator that equals torch's.

    Args:
        weight: ``[harmonics]`` float32, of the source's linear layer.
    """
    random = TorchRandom(0)
    before = prod(SOLVER_NOISE) + prod(TOKEN_TABLE) + sum(out * (fan_in + 1) for out, fan_in in LAYERS)
    random.uniform(before + len(weight))  # at the end an initial phase, which changes nothing
    while True:
        yield random.uniform(STEP * len(weight)).reshape(STEP, -1) @ weight


Doubles = npt.NDArray[np.float64]
UNVOICED_NOISE = 1 / 3
"""Noise of unvoiced frames relative to the sine's amplitude (NSF, arXiv 1904.12088)."""


class Phase(NamedTuple):
    """Phase at which an utterance goes on.

    Attributes:
        f0: of the frame at whose centre it holds, in Hz, as it was used.
        cycles: ``[harmonics]``, in turns.
    """

    f0: np.float64
    cycles: Doubles


class CpuSource:
    """Sines of all harmonics, merged to one signal by a learnt linear layer and tanh.

    Args:
        weight: ``[harmonics]`` of that layer; ``bias``: ``[1]``.
    """

    def __init__(self, config: VocoderConfig, weight: Floats, bias: Floats) -> None:
        self._config, self._weight, self._bias = config, weight, bias
        self._noise_weight = self._of_noise()
        offsets = (np.arange(config.hop) + 0.5) / config.hop - 0.5
        self._offsets = offsets.astype(np.float32)

    def utterance_noise(self, seed: int) -> UtteranceNoise:
        return SourceNoise(self._config.hop, TorchRandom(seed).normal)

    def _of_noise(self) -> np.float32:
        """The factor that the harmonics' weights give to noise."""
        return np.float32(np.sqrt(np.square(self._weight).sum()))

    def turns(self, f0: Doubles) -> Doubles:
        """Turns of each harmonic in a frame: ``[T, harmonics]``."""
        harmonics = np.arange(1, len(self._weight) + 1, dtype=np.float64)
        per_sample = (f0[:, None] * harmonics / self._config.sample_rate) % 1
        turns: Doubles = per_sample * self._config.hop
        return turns

    def cycles(self, turns: Doubles, phase: Phase | None) -> Doubles:
        """Phase at the frame centres; the first frame's is ``phase``, where there is one."""
        if phase is None:
            started: Doubles = np.cumsum(turns, axis=0) % 1
            return started
        going = turns.copy()
        going[0] = 0
        cycles: Doubles = (np.cumsum(going, axis=0) + phase.cycles) % 1
        return cycles

    def wave(
        self, f0: Doubles, turns: Doubles, cycles: Doubles, starts: bool, noise: Floats | None
    ) -> Floats:
        """Samples ``[hop * T]`` of the first T frames of those with turns.

        Args:
            f0, cycles: of T frames; ``turns``: of these and, unless the utterance ends there, one more.
            starts: the first frame is the utterance's first.
            noise: of :meth:`utterance_noise`, ``[hop * T]``, or None for a source without.
        """
        frames, config = len(f0), self._config
        before = turns[:frames].astype(np.float32)
        if starts:
            before[0] = 0
        after = np.zeros_like(before)
        after[: len(turns) - 1] = turns[1 : frames + 1]
        voiced = (f0 > config.voiced_threshold_hz)[:, None]
        merged = self._merged(cycles, before, after)
        merged *= voiced * np.float32(config.sine_amplitude)
        if noise is not None:
            unvoiced = config.sine_amplitude * UNVOICED_NOISE
            level = np.where(voiced, np.float32(config.noise_std), np.float32(unvoiced)) * self._noise_weight
            merged += level * noise.reshape(frames, -1)
        return np.tanh(merged + self._bias).reshape(-1)

    def _merged(self, cycles: Doubles, before: Floats, after: Floats) -> Floats:
        """Weighted sum of the sines ``[T, hop]``; the phase goes straight from centre to centre."""
        middle = int(np.searchsorted(self._offsets, 0))
        merged = np.zeros((len(cycles), self._config.hop), np.float32)
        phase = np.empty_like(merged)
        for harmonic, weight in enumerate(self._weight):
            start = cycles[:, harmonic, None].astype(np.float32)
            phase[:, :middle] = start + self._offsets[:middle] * before[:, harmonic, None]
            phase[:, middle:] = start + self._offsets[middle:] * after[:, harmonic, None]
            merged += weight * np.sin(np.float32(2 * pi) * (phase - np.round(phase)))
        return merged


class CpuStaircaseSource(CpuSource):
    """CosyVoice3's source: the phase stands still within a frame, and all utterances hear the same noise."""

    @cached_property
    def _table(self) -> NoiseTable:
        return NoiseTable(table_values(self._weight))

    def utterance_noise(self, seed: int) -> UtteranceNoise:  # noqa: ARG002
        return FixedNoise(self._table, self._config.hop)

    def _of_noise(self) -> np.float32:
        """1: the table holds weighed noise."""
        return np.float32(1)

    def _merged(self, cycles: Doubles, before: Floats, after: Floats) -> Floats:  # noqa: ARG002
        sines = np.sin(2 * pi * (cycles - np.round(cycles))).astype(np.float32)
        return np.repeat((sines @ self._weight)[:, None], self._config.hop, axis=1)


def source_of(config: VocoderConfig, weight: Floats, bias: Floats) -> CpuSource:
    """The source for a configuration, picked by its class."""
    place = vocoder_parts(config).onnx_source
    assert place is not None, "a graph was made for the vocoder"
    source: CpuSource = load(place)(config, weight, bias)
    return source
