"""State that utterances carry from one window of the vocoder to the next, in memory of one size for all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config_vocoder import VocoderConfig
from cosyvoice_runtime.vocoder.context import context

DOUBLE = torch.float64.itemsize // torch.float32.itemsize
"""Numbers in float32 that one in float64 takes."""


class CarryLayout:
    """Where the parts of what is carried are, in one row of float32 numbers.

    One row, because the host gathers and scatters rows, and each operation costs it as much as another.

    Attributes:
        size: numbers of a row.
        start: of an utterance that begins: zeros.
        no_mel: ``[bins, 0]``.
    """

    def __init__(self, config: VocoderConfig, device: torch.device) -> None:
        around = context(config)
        self._bins, self._frames = config.mel_bins, around.left + around.lookahead
        self._doubles = DOUBLE * (config.num_harmonics + 2)
        self._mel = self._doubles + self._bins * self._frames
        self._end = self._mel + config.hop * around.left
        self.size = self._end + self._end % DOUBLE  # where the next row's float64 may begin
        self.start = VocoderCarry(torch.zeros(self.size, device=device), self)
        self.no_mel = torch.zeros(self._bins, 0, device=device)

    def packed(self, mel: Tensor, source: Tensor, f0: Tensor, cycles: Tensor) -> Tensor:
        """Rows ``[B, size]`` of the parts of several utterances."""
        doubles = torch.cat([f0[:, None], cycles], dim=1).view(torch.float32)
        padding = source.new_zeros(len(mel), self.size - self._end)
        return torch.cat([doubles, mel.flatten(1), source, padding], dim=1)

    def mel(self, flat: Tensor) -> Tensor:
        return flat[..., self._doubles : self._mel].unflatten(-1, (self._bins, self._frames))

    def source(self, flat: Tensor) -> Tensor:
        return flat[..., self._mel : self._end]

    def doubles(self, flat: Tensor) -> Tensor:
        """F0, then cycles."""
        return flat[..., : self._doubles].view(torch.float64)


@cache
def carry_layout(config: VocoderConfig, device: torch.device) -> CarryLayout:
    """Layout of what a vocoder on a device carries: one for all its utterances."""
    return CarryLayout(config, device)


@dataclass(frozen=True, eq=False)
class VocoderCarry:
    """Of one utterance, or of several with rows on axis 0.

    Attributes:
        flat: ``[size]`` float32, all of it.
    """

    flat: Tensor
    layout: CarryLayout

    @property
    def mel(self) -> Tensor:
        """``[bins, left + lookahead]`` float32, the newest frames: emitted ones as far as the next window
        looks back, then those that wait. How many there are is known elsewhere.
        """
        return self.layout.mel(self.flat)

    @property
    def source(self) -> Tensor:
        """``[hop * left]`` float32, the source of the emitted frames among them as it was used."""
        return self.layout.source(self.flat)

    @property
    def f0(self) -> Tensor:
        """float64, used for the first frame that waits: it and its phase must not change, because the last
        emitted samples were interpolated towards them.
        """
        return self.layout.doubles(self.flat)[..., 0]

    @property
    def cycles(self) -> Tensor:
        """Its phase: ``[harmonics]`` float64, turns."""
        return self.layout.doubles(self.flat)[..., 1:]

    @property
    def no_mel(self) -> Any:
        return self.layout.no_mel

    @property
    def nbytes(self) -> int:
        return self.flat.nbytes
