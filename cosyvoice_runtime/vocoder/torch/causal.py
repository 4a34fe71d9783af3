"""CosyVoice3's vocoder: HiFT whose convolutions look back only, and whose phase goes in steps of a frame.

Two convolutions look ahead: the decoder's first, and the F0 predictor's first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config import CausalVocoderConfig, VocoderConfig
from cosyvoice_runtime.vocoder.geometry import EDGE_KERNEL, F0_KERNEL, UpsamplingStage
from cosyvoice_runtime.vocoder.state import LAYERS, SOLVER_NOISE, STEP, TOKEN_TABLE, FixedNoise, NoiseTable
from cosyvoice_runtime.vocoder.torch.hift import Decoder, F0Predictor, FrameConv, ResBlock
from cosyvoice_runtime.vocoder.torch.source import HarmonicSource


def uniform_noise(columns: int, samples: int = STEP) -> Iterator[Tensor]:
    """The table, [samples, columns] float32 at a time, without end."""
    generator = torch.Generator().manual_seed(0)
    torch.randn(*SOLVER_NOISE, generator=generator)
    torch.randn(*TOKEN_TABLE, generator=generator)
    for outputs, fan_in in LAYERS:
        torch.rand(outputs * fan_in, generator=generator)
        torch.rand(outputs, generator=generator)
    torch.rand(columns, generator=generator)  # an initial phase, which changes nothing
    while True:
        yield torch.rand(samples, columns, generator=generator)


class PaddedConv(nn.Conv1d):
    """Convolution with ``edges`` of zeros before and after the signal."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        edges: tuple[int, int],
        stride: int = 1,
        dilation: int = 1,
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, dilation=dilation)
        self.edges = edges

    def forward(self, signal: Tensor) -> Tensor:
        """[B, inputs, steps] to [B, outputs, steps / stride]."""
        return super().forward(F.pad(signal, self.edges))


class RepeatingConv(PaddedConv):
    """Each step ``rate`` times, then a convolution that looks back."""

    def __init__(self, inputs: int, outputs: int, kernel: int, rate: int) -> None:
        super().__init__(inputs, outputs, kernel, (kernel - 1, 0))
        self.rate = rate

    def forward(self, signal: Tensor) -> Tensor:
        """[B, inputs, steps] to [B, outputs, rate * steps]."""
        return super().forward(signal.repeat_interleave(self.rate, dim=2))


def looking_back(channels: int, kernel: int, dilation: int) -> nn.Conv1d:
    """Convolution that keeps the length and sees no later step."""
    return PaddedConv(channels, channels, kernel, (dilation * (kernel - 1), 0), dilation=dilation)


class CausalDecoder(Decoder):
    """The decoder of convolutions that look back; the first looks ahead and not back."""

    def _first_conv(self, inputs: int, outputs: int) -> nn.Conv1d:
        kernel = self.config.first_kernel
        return PaddedConv(inputs, outputs, kernel, (0, kernel - 1))

    def _upsampling(self, stage: UpsamplingStage) -> nn.Module:
        return RepeatingConv(2 * stage.channels, stage.channels, stage.kernel, stage.rate)

    def _source_conv(self, stage: UpsamplingStage, inputs: int) -> nn.Conv1d:
        edges = (stage.source_stride - 1, 0)
        return PaddedConv(inputs, stage.channels, stage.source_kernel, edges, stage.source_stride)

    def _resblock(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> ResBlock:
        return ResBlock(channels, kernel, dilations, looking_back)

    def _last_conv(self, inputs: int, outputs: int) -> nn.Conv1d:
        return PaddedConv(inputs, outputs, EDGE_KERNEL, (EDGE_KERNEL - 1, 0))


class CausalF0Predictor(F0Predictor):
    """The predictor of convolutions that look back; the first looks ahead and not back."""

    def __init__(self, config: VocoderConfig) -> None:
        self._first_kernel = config.first_f0_kernel
        super().__init__(config)

    def _conv(self, index: int, inputs: int, outputs: int) -> FrameConv:
        if index == 0:
            return FrameConv(inputs, outputs, self._first_kernel, ahead=self._first_kernel - 1)
        return FrameConv(inputs, outputs, F0_KERNEL, ahead=0)


class StaircaseSource(HarmonicSource):
    """Harmonics whose phase stands still within a frame, and the uniform noise that every utterance hears.

    The published code brings the phase of each frame to its samples without interpolation; a frame's own
    advance is in it.
    """

    def utterance_noise(self, seed: int) -> FixedNoise:  # noqa: ARG002
        """The noise of every utterance."""
        return FixedNoise(self._table, self.config.hop)

    def merge_noise(self, noise: Tensor) -> Tensor:
        """One value a sample that acts as ``noise``, [B, samples, harmonics], would."""
        return noise @ self.l_linear.weight[0]

    @cached_property
    def _table(self) -> NoiseTable:
        weight = self.l_linear.weight[0].cpu()
        return NoiseTable((rows @ weight).numpy() for rows in uniform_noise(len(weight)))

    def _sines(self, turns: Tensor, cycles: Tensor) -> Tensor:  # noqa: ARG002
        """[B, T, hop, harmonics] float32."""
        steps = torch.sin(2 * pi * (cycles - cycles.round())).float()
        return steps[:, :, None].expand(-1, -1, self.config.hop, -1)

    def _noise_level(self, voiced: Tensor) -> Tensor:
        return self._noise_amplitude(voiced)


def networks(config: CausalVocoderConfig) -> tuple[F0Predictor, HarmonicSource, Decoder]:
    """F0 predictor, source and decoder of convolutions that look back."""
    return CausalF0Predictor(config), StaircaseSource(config), CausalDecoder(config)
