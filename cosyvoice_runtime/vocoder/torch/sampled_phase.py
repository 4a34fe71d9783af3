"""CosyVoice-300M's vocoder: HiFT whose phase is summed over samples, from a random start at every call.

F0 holds for a whole frame and nothing is interpolated. The phases at the start matter, because the harmonics'
differ, so the caller draws them (:class:`RandomStart`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import SampledPhaseVocoderConfig, VocoderConfig
from cosyvoice_runtime.vocoder.torch.hift import Decoder, F0Predictor
from cosyvoice_runtime.vocoder.torch.source import FROM_THE_START, HarmonicSource, PhaseCarry


@dataclass(frozen=True, eq=False)
class RandomStart:
    """Draws of a call of the vocoder.

    Attributes:
        phases: float64 ``[1, harmonics]`` in radians, -pi to pi; 0 for the first.
        noise: float32 ``[1, hop * T]`` standard normal.
    """

    phases: Tensor
    noise: Tensor

    @classmethod
    def draw(cls, config: VocoderConfig, frames: int, generator: torch.Generator) -> RandomStart:
        """For so many frames, on the CPU, so that every device hears the same."""
        phases = pi * (2 * torch.rand(1, config.num_harmonics + 1, generator=generator).double() - 1)
        phases[:, 0] = 0
        return cls(phases, torch.randn(1, config.hop * frames, generator=generator))

    @classmethod
    def silent(cls, config: VocoderConfig, frames: int) -> RandomStart:
        """Zeros: no noise, all phases alike."""
        phases = torch.zeros(1, config.num_harmonics + 1, dtype=torch.float64)
        return cls(phases, torch.zeros(1, config.hop * frames))

    def carry(self) -> PhaseCarry:
        """The phase that the source goes on from."""
        return PhaseCarry(
            frame=torch.full((1,), FROM_THE_START, device=self.phases.device),
            cycles=self.phases / (2 * pi),
            f0=self.phases.new_zeros(1),
        )

    def to(self, device: torch.device) -> RandomStart:
        return RandomStart(self.phases.to(device), self.noise.to(device))


class SampledPhaseSource(HarmonicSource):
    """Harmonics whose phase grows by F0 with every sample; ``cycles`` are those at the end of a frame."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__(config)
        samples = torch.arange(1, config.hop + 1, dtype=torch.float64)
        self.register_buffer("offsets", (samples / config.hop - 1)[:, None], persistent=False)

    def _sines(self, turns: Tensor, cycles: Tensor) -> Tensor:
        """[B, T, hop, harmonics] float32."""
        phase = cycles[:, :, None] + self.offsets * turns[:, :, None]
        return torch.sin(2 * pi * (phase - phase.round()).float())


def networks(config: SampledPhaseVocoderConfig) -> tuple[F0Predictor, HarmonicSource, Decoder]:
    """F0 predictor, source whose phase is summed over samples, and decoder."""
    return F0Predictor(config), SampledPhaseSource(config), Decoder(config)
