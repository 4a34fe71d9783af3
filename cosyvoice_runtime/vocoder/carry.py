"""What utterances carry from one window of the vocoder to the next, in memory of one size for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.wave.context import context


class VocoderCarry(NamedTuple):
    """Of one utterance, or of several with rows on axis 0.

    Attributes:
        mel: ``[bins, left + lookahead]`` float32, the newest frames: emitted ones as far as the next window
            looks back, then those that wait. How many there are is known elsewhere.
        source: ``[hop * left]`` float32, the source of the emitted frames among them as it was used.
        f0, cycles: F0 and phase (``[harmonics]``, turns), float64, used for the first frame that waits. They
            must not change: the last emitted samples were interpolated towards them.
    """

    mel: Tensor
    source: Tensor
    f0: Tensor
    cycles: Tensor

    @classmethod
    def at_start(cls, config: VocoderConfig, device: torch.device | str) -> VocoderCarry:
        """Zeros."""
        around = context(config)
        return cls(
            mel=torch.zeros(config.mel_bins, around.left + around.lookahead, device=device),
            source=torch.zeros(config.hop * around.left, device=device),
            f0=torch.zeros((), dtype=torch.float64, device=device),
            cycles=torch.zeros(config.num_harmonics + 1, dtype=torch.float64, device=device),
        )

    @classmethod
    def idle(cls, config: VocoderConfig, rows: int, device: torch.device) -> VocoderCarry:
        """Zeros of several."""
        return cls(*(part.new_zeros(rows, *part.shape) for part in cls.at_start(config, device)))

    def fill_(self, utterances: Sequence[VocoderCarry]) -> None:
        """Take the first rows from these."""
        for mine, parts in zip(self, zip(*utterances, strict=True), strict=True):
            torch.stack(parts, out=mine[: len(parts)])

    def clone(self) -> VocoderCarry:
        """In memory of its own."""
        return VocoderCarry(*(part.clone() for part in self))

    def rows(self) -> list[VocoderCarry]:
        """Of each utterance."""
        return [VocoderCarry(*row) for row in zip(*(part.unbind(0) for part in self), strict=True)]

    @property
    def nbytes(self) -> int:
        """Memory of one utterance, in bytes."""
        return sum(part.nbytes for part in self)
