"""Fundamental frequency from mel."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.vocoder.geometry import F0_KERNEL, F0_LAYERS
from cosyvoice_runtime.vocoder.rows import Rows


class F0Predictor(nn.Module):
    """Convolutions with ELU, then one value a frame.

    Always float64. Phase is the running sum of F0, so that rounding which depends on how an utterance is cut
    into chunks would grow with its length; and float64 is exempt from TF32.
    """

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        widths = [config.mel_bins] + [config.f0_channels] * F0_LAYERS
        self.condnet = nn.ModuleDict(
            # The published names count the activations in between.
            {str(2 * index): FrameConv(widths[index], widths[index + 1]) for index in range(F0_LAYERS)}
        )
        self.classifier = nn.Linear(config.f0_channels, 1)

    def forward(self, mel: Tensor, rows: Rows) -> Tensor:
        """F0 in Hz, [B, T] float64, of mel [B, bins, T]."""
        trim = rows.trim()
        hidden = trim(mel.double())
        for conv in self.condnet.values():
            hidden = trim(F.elu(conv(hidden)))
        return self.classifier(hidden.transpose(1, 2)).squeeze(-1).abs()


class FrameConv(nn.Conv1d):
    """Length-keeping convolution as one matrix product: convolution libraries treat float64 badly."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, F0_KERNEL)

    def forward(self, signal: Tensor) -> Tensor:
        """[B, inputs, T] to [B, outputs, T]."""
        edge = F0_KERNEL // 2
        windows = F.pad(signal, (edge, edge)).unfold(2, F0_KERNEL, 1)  # [B, inputs, T, kernel]
        return F.linear(windows.transpose(1, 2).flatten(2), self.weight.flatten(1), self.bias).transpose(1, 2)
