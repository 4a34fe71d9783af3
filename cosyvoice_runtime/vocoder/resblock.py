"""Residual block of dilated convolutions with periodic activations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cosyvoice_runtime.vocoder.rows import Trim


class Snake(nn.Module):
    """x + sin(alpha x)^2 / alpha per channel (arXiv 2006.08195).

    Computed in float32 whatever the signal's type: 1 / alpha leaves the range of float16.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(channels))

    def forward(self, signal: Tensor) -> Tensor:
        alpha = self.alpha[:, None]
        wave = torch.sin(signal * alpha)
        return torch.addcmul(signal.float(), wave, wave / (alpha + 1e-9)).to(signal.dtype)


class ResBlock(nn.Module):
    """Pairs of (Snake, dilated convolution, Snake, convolution), each added to its input."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(_same(channels, kernel, dilation) for dilation in dilations)
        self.convs2 = nn.ModuleList(_same(channels, kernel, 1) for _ in dilations)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in dilations)

    def forward(self, signal: Tensor, trim: Trim) -> Tensor:
        """[B, channels, steps] to the same shape."""
        layers = zip(self.activations1, self.convs1, self.activations2, self.convs2, strict=True)
        for snake1, conv1, snake2, conv2 in layers:
            hidden = trim(conv1(snake1(signal)))
            signal = signal + trim(conv2(snake2(hidden)))
        return signal


def _same(channels: int, kernel: int, dilation: int) -> nn.Conv1d:
    return nn.Conv1d(channels, channels, kernel, padding=dilation * (kernel - 1) // 2, dilation=dilation)
