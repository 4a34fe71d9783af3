"""The noise in the source of CosyVoice2's vocoder; the same numbers as on torch."""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.onnx_cpu.torch_random import BLOCK, TorchRandom
from cosyvoice_runtime.wave.vocoder_state import NoiseMark


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
