"""Random part of the source."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 16
"""torch's CPU normal generator works in blocks of 16 values; whole blocks can be drawn in any parts."""


NoiseMark = tuple[Tensor, Tensor]


class SourceNoise:
    """One utterance's noise: the same sequence of frames however it is asked for.

    Drawn on the CPU, so that every device hears the same, from a generator nobody else uses.
    """

    def __init__(self, seed: int, hop: int) -> None:
        self.hop = hop
        self._generator = torch.Generator().manual_seed(seed)
        self._ahead = torch.empty(0, hop)

    def peek(self, frames: int) -> Tensor:
        """The next frames, [hop * frames] float32 standard normal, without using them up."""
        missing = frames - len(self._ahead)
        if missing > 0:
            self._ahead = torch.cat([self._ahead, self._fresh(missing)])
        return self._ahead[:frames].flatten()

    def skip(self, frames: int) -> None:
        """Use up frames."""
        self.peek(frames)
        self._ahead = self._ahead[frames:].clone()

    def draw(self, frames: int) -> Tensor:
        """The next frames, [hop * frames] float32, used up."""
        noise = self.peek(frames)
        self.skip(frames)
        return noise

    def _fresh(self, frames: int) -> Tensor:
        whole_blocks = -(-self.hop // BLOCK) * BLOCK
        return torch.randn(frames, whole_blocks, generator=self._generator)[:, : self.hop]

    def mark(self) -> NoiseMark:
        """Where it is, for :meth:`rewind`."""
        return self._ahead, self._generator.get_state()

    def rewind(self, mark: NoiseMark) -> None:
        """Be again where it was: the same frames come next."""
        self._ahead = mark[0]
        self._generator.set_state(mark[1])

    @property
    def nbytes(self) -> int:
        """Memory held for frames already drawn."""
        return self._ahead.nbytes
