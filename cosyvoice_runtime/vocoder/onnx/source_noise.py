"""The noise in the source of each family's vocoder; the same numbers as on torch."""

from __future__ import annotations

from math import prod
from threading import Lock

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.onnx.torch_random import BLOCK, TorchRandom
from cosyvoice_runtime.vocoder.noise_table import LAYERS, SOLVER_NOISE, STEP, TOKEN_TABLE
from cosyvoice_runtime.vocoder.state import NoiseMark


class CpuSourceNoise:
    """Standard normal noise of an utterance's own, from a generator nobody else uses."""

    def __init__(self, seed: int, hop: int) -> None:
        self.hop = hop
        self._random = TorchRandom(seed)
        self._ahead = np.zeros((0, hop), np.float32)

    def peek(self, frames: int) -> Floats:
        """The next frames, ``[hop * frames]`` float32 standard normal, without using them up."""
        missing = frames - len(self._ahead)
        if missing > 0:
            self._ahead = np.concatenate([self._ahead, self._fresh(missing)])
        return self._ahead[:frames].reshape(-1)

    def skip(self, frames: int) -> None:
        """Use up frames."""
        self.peek(frames)
        self._ahead = self._ahead[frames:].copy()

    def mark(self) -> NoiseMark:
        """Where it is, for :meth:`rewind`."""
        return self._ahead, self._random.mark()

    def rewind(self, mark: NoiseMark) -> None:
        """Be again where it was: the same frames come next."""
        self._ahead = mark[0]
        self._random.rewind(mark[1])

    @property
    def nbytes(self) -> int:
        """Memory held for frames already drawn."""
        return self._ahead.nbytes

    def _fresh(self, frames: int) -> Floats:
        whole_blocks = -(-self.hop // BLOCK) * BLOCK
        return self._random.normal(frames * whole_blocks).reshape(frames, whole_blocks)[:, : self.hop]


class CpuNoiseTable:
    """One value for each sample: a row of uniform numbers, weighed as the source merges them.

    Safe for threads.

    Args:
        weight: ``[harmonics]`` float32, of the source's linear layer.
    """

    def __init__(self, weight: Floats) -> None:
        self._weight = weight
        self._random = TorchRandom(0)
        before = prod(SOLVER_NOISE) + prod(TOKEN_TABLE) + sum(out * (fan_in + 1) for out, fan_in in LAYERS)
        self._random.uniform(before + len(weight))  # at the end an initial phase, which changes nothing
        self._values = np.zeros(0, np.float32)
        self._lock = Lock()

    def __getitem__(self, samples: slice) -> Floats:
        """Values of a range of samples, float32."""
        with self._lock:
            while len(self._values) < samples.stop:
                rows = self._random.uniform(STEP * len(self._weight)).reshape(STEP, -1)
                self._values = np.concatenate([self._values, rows @ self._weight])
        return self._values[samples]
