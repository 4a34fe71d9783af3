"""Mel and source spectrum to waveform."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.vocoder.fourier import Fourier
from cosyvoice_runtime.vocoder.geometry import EDGE_KERNEL, UpsamplingStage, stages
from cosyvoice_runtime.vocoder.resblock import ResBlock
from cosyvoice_runtime.vocoder.rows import Rows

HEAD_SLOPE = 0.01
"""Slope before the last convolution: torch's default, not the configured one."""

MAX_MAGNITUDE = 100.0
"""Cap on the spectral magnitude that the head can ask for."""


class Decoder(nn.Module):
    """Upsampling stages, each fed by the source's spectrum, and an inverse STFT as the last stage."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        self.stages = stages(config)
        self.spectral_rate = config.hop // config.istft_hop
        self.fourier = Fourier(config.istft_size, config.istft_hop)
        self.conv_pre = _edge(config.mel_bins, config.base_channels)
        self.ups = nn.ModuleList(_upsampling(stage) for stage in self.stages)
        self.source_downs = nn.ModuleList(_source_conv(stage, config.istft_size + 2) for stage in self.stages)
        self.source_resblocks = nn.ModuleList(
            ResBlock(stage.channels, kernel, dilations)
            for stage, kernel, dilations in zip(
                self.stages, config.source_kernels, config.source_dilations, strict=True
            )
        )
        self.resblocks = nn.ModuleList(
            ResBlock(stage.channels, kernel, dilations)
            for stage in self.stages
            for kernel, dilations in zip(config.resblock_kernels, config.resblock_dilations, strict=True)
        )
        self.conv_post = _edge(self.stages[-1].channels, config.istft_size + 2)

    def forward(self, mel: Tensor, source: Tensor, rows: Rows) -> Tensor:
        """Waveform [B, hop * T] float32 of mel [B, bins, T] and source [B, hop * T] float32."""
        dtype = self.conv_pre.weight.dtype
        trim = rows.trim()
        spectrum = self.fourier.transform(source, rows, self.spectral_rate).to(dtype)
        hidden = trim(self.conv_pre(trim(mel.to(dtype))))
        for index in range(len(self.stages)):
            hidden = self._stage(index, hidden, spectrum, rows)
        head = self.conv_post(F.leaky_relu(hidden, HEAD_SLOPE)).float()
        wave = self.fourier.invert(_polar(head), rows, self.spectral_rate)
        return wave.clamp(-self.config.audio_limit, self.config.audio_limit)

    def _stage(self, index: int, hidden: Tensor, spectrum: Tensor, rows: Rows) -> Tensor:
        stage = self.stages[index]
        hidden = self.ups[index](F.leaky_relu(hidden, self.config.leaky_slope))
        if stage.is_last:
            hidden = F.pad(hidden, (1, 0), mode="reflect")
        trim = rows.trim(stage.steps_per_frame, int(stage.is_last))
        source = self.source_resblocks[index](trim(self.source_downs[index](spectrum)), trim)
        hidden = trim(hidden) + source
        kernels = len(self.config.resblock_kernels)
        blocks = self.resblocks[index * kernels : (index + 1) * kernels]
        return torch.stack([block(hidden, trim) for block in blocks]).mean(0)


def _polar(head: Tensor) -> Tensor:
    """Real and imaginary parts of log magnitude and (sine-warped) phase, stacked on axis 1."""
    log_magnitude, phase = head.chunk(2, dim=1)
    magnitude = log_magnitude.exp().clamp(max=MAX_MAGNITUDE)
    phase = phase.sin()
    return torch.cat([magnitude * phase.cos(), magnitude * phase.sin()], dim=1)


def _edge(inputs: int, outputs: int) -> nn.Conv1d:
    return nn.Conv1d(inputs, outputs, EDGE_KERNEL, padding=EDGE_KERNEL // 2)


def _upsampling(stage: UpsamplingStage) -> nn.ConvTranspose1d:
    return nn.ConvTranspose1d(2 * stage.channels, stage.channels, stage.kernel, stage.rate, stage.padding)


def _source_conv(stage: UpsamplingStage, inputs: int) -> nn.Conv1d:
    return nn.Conv1d(inputs, stage.channels, stage.source_kernel, stage.source_stride, stage.source_padding)
