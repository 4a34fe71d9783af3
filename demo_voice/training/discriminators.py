"""Critics of the vocoder: waveform by periods (HiFi-GAN, 2010.05646), spectrograms (UnivNet, 2106.07889)."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PERIODS = (2, 3, 5, 7, 11)
RESOLUTIONS = ((512, 128), (1024, 256), (2048, 512))
SLOPE = 0.1

Layers = list[Tensor]


class PeriodCritic(nn.Module):
    """Reads every ``period``-th sample side by side."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period
        widths = (1, 16, 48, 96, 128)
        self.layers = nn.ModuleList(
            nn.Conv2d(inputs, outputs, (5, 1), (3, 1), (2, 0))
            for inputs, outputs in itertools.pairwise(widths)
        )
        self.head = nn.Conv2d(widths[-1], 1, (3, 1), padding=(1, 0))

    def forward(self, wave: Tensor) -> Layers:
        """``[B, n]`` to the outputs of all layers, the verdict last."""
        padded = F.pad(wave[:, None], (0, -wave.shape[1] % self.period), mode="reflect")
        return _through(self.layers, self.head, padded.unflatten(-1, (-1, self.period)))


class SpectrumCritic(nn.Module):
    """Reads a magnitude spectrogram."""

    window: Tensor

    def __init__(self, size: int, hop: int, width: int = 24) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hann_window(size), persistent=False)
        strides = ((1, 1), (2, 1), (2, 1), (2, 1))
        self.layers = nn.ModuleList(
            nn.Conv2d(width if place else 1, width, (5, 3), stride, (2, 1))
            for place, stride in enumerate(strides)
        )
        self.head = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, wave: Tensor) -> Layers:
        """``[B, n]`` to the outputs of all layers, the verdict last."""
        spectrum = torch.stft(wave, self.size, self.hop, window=self.window, return_complex=True)
        magnitude = spectrum.abs().clamp(min=1e-3).log()
        return _through(self.layers, self.head, magnitude[:, None])


class Critics(nn.Module):
    """All of them."""

    def __init__(self) -> None:
        super().__init__()
        self.periods = nn.ModuleList(PeriodCritic(period) for period in PERIODS)
        self.spectra = nn.ModuleList(SpectrumCritic(size, hop) for size, hop in RESOLUTIONS)

    def forward(self, wave: Tensor) -> list[Layers]:
        """Layers of each critic."""
        return [critic(wave) for critic in (*self.periods, *self.spectra)]


def critics_loss(real: list[Layers], made: list[Layers]) -> Tensor:
    """Least squares: real is one, made is zero."""
    losses = [(1 - r[-1]).square().mean() + m[-1].square().mean() for r, m in zip(real, made, strict=True)]
    return torch.stack(losses).mean()


def deception_loss(made: list[Layers]) -> Tensor:
    """Least squares: made should be taken for real."""
    return torch.stack([(1 - layers[-1]).square().mean() for layers in made]).mean()


def likeness_loss(real: list[Layers], made: list[Layers]) -> Tensor:
    """Distance of the critics' inner layers, relative to their size."""
    losses = [
        (r.detach() - m).abs().mean() / r.detach().abs().mean().clamp(min=1e-3)
        for row, other in zip(real, made, strict=True)
        for r, m in zip(row[:-1], other[:-1], strict=True)
    ]
    return torch.stack(losses).mean()


def _through(layers: nn.ModuleList, head: nn.Module, x: Tensor) -> Layers:
    outputs = []
    for layer in layers:
        x = F.leaky_relu(layer(x), SLOPE)
        outputs.append(x)
    return [*outputs, head(x)]
