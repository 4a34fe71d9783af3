"""CosyVoice-300M's velocity estimator: a U-Net whose inner level has half as many frames.

Convolutions look both ways, norms and attention reach over all frames of a row: one changed frame changes
all, so rows are computed together only where they have equal lengths, and nothing can be kept of a call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config_flow import ResamplingEstimatorConfig
from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.flow.torch.estimator import CONV_TAPS, TransformerBlock, time_sinusoid
from cosyvoice_runtime.flow.torch.layers import Past

NORM_GROUPS = 8


class SameConv(nn.Conv1d):
    """Convolution of ``[B, T, C]`` with as many frames on both sides; stride 2 halves them, an odd one
    counts."""

    def __init__(self, channels_in: int, channels: int, stride: int = 1) -> None:
        super().__init__(channels_in, channels, CONV_TAPS, stride, padding=CONV_TAPS // 2)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class DoublingConv(nn.ConvTranspose1d):
    """Transposed convolution of ``[B, T, C]`` to ``[B, 2 * T, C]``."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 4, 2, 1)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        return super().forward(x.transpose(1, 2), output_size).transpose(1, 2)


class GroupNormBlock(nn.Module):
    """Convolution, GroupNorm over channels and all frames, Mish."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.conv = SameConv(channels_in, channels)
        self.norm = nn.GroupNorm(NORM_GROUPS, channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.mish(self.norm(self.conv(x).transpose(1, 2)).transpose(1, 2))


class GroupNormResnet(nn.Module):
    """Two convolution blocks with the time added in between, and a linear shortcut."""

    def __init__(self, channels_in: int, channels: int, time_width: int) -> None:
        super().__init__()
        self.time = nn.Linear(time_width, channels)
        self.first = GroupNormBlock(channels_in, channels)
        self.second = GroupNormBlock(channels, channels)
        self.shortcut = nn.Linear(channels_in, channels)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """``x [B, T, C]``; ``time [B or 1, time_width]``, activated."""
        return self.second(self.first(x) + self.time(time)[:, None]) + self.shortcut(x)


class ResamplingStage(nn.Module):
    """A residual block, its transformer blocks and the convolution that ends it."""

    def __init__(
        self,
        config: ResamplingEstimatorConfig,
        channels_in: int,
        channels: int,
        layout: PastLayout,
        conv: nn.Module,
    ) -> None:
        super().__init__()
        level = config.level(channels)
        self.resnet = GroupNormResnet(channels_in, channels, config.time_width)
        self.blocks = nn.ModuleList(TransformerBlock(level, layout) for _ in range(config.blocks_per_stage))
        self.conv = conv

    def forward(self, x: Tensor, time: Tensor, past: Past) -> tuple[Tensor, Tensor]:
        """Output of the last convolution, and its input, ``[B, T, channels]``."""
        x = self.resnet(x, time)
        for block in self.blocks:
            x = block(x, None, past)
        return self.conv(x), x


class ResamplingEstimator(nn.Module):
    """dx/dt of the noisy mel x at time t, given the stretched tokens, the voice and the prompt's mel."""

    def __init__(self, config: ResamplingEstimatorConfig, mel_bins: int) -> None:
        super().__init__()
        layout = PastLayout(config.num_heads, config.head_dim)
        last = len(config.channels) - 1
        self.sinusoid_width = config.in_channels
        self.time_in = nn.Linear(config.in_channels, config.time_width)
        self.time_out = nn.Linear(config.time_width, config.time_width)
        self.down = nn.ModuleList(
            ResamplingStage(
                config, inputs, outputs, layout, SameConv(outputs, outputs, 1 if at == last else 2)
            )
            for at, (inputs, outputs) in enumerate(config.down_stages)
        )
        inner = config.channels[-1]
        self.mid = nn.ModuleList(
            ResamplingStage(config, inner, inner, layout, nn.Identity()) for _ in range(config.num_mid_stages)
        )
        self.up = nn.ModuleList(
            ResamplingStage(config, inputs, outputs, layout, _up_conv(outputs, is_last=at == last))
            for at, (inputs, outputs) in enumerate(config.up_stages)
        )
        self.final = GroupNormBlock(config.channels[0], config.channels[0])
        self.projection = nn.Linear(config.channels[0], mel_bins)

    def time_biases(self, t: Tensor) -> Tensor:
        """The activated embedding of times ``t [B]`` in [0, 1], of which every stage adds a projection:
        ``[1, B, time_width]``."""
        sinusoid = time_sinusoid(t, self.sinusoid_width).to(self.time_in.weight.dtype)
        return F.mish(self.time_out(F.silu(self.time_in(sinusoid))))[None]

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        condition: Tensor,
        time_biases: Tensor,
        visible: None,  # noqa: ARG002
        past: Past,
    ) -> Tensor:
        """Velocity ``[B, T, mel]`` of every frame of rows of equal lengths.

        Args:
            x, mu, condition: ``[B, T, mel]`` noisy mel, stretched tokens, prompt mel (zeros after it).
            speaker: ``[B, mel]`` projected speaker embedding.
            time_biases: ``[1, B or 1, time_width]`` from :meth:`time_biases`.
            visible: None; every frame sees every frame.
        """
        time = time_biases[0]
        hidden = torch.cat([x, mu, speaker[:, None].expand(-1, x.shape[1], -1), condition], dim=-1)
        kept = []
        for stage in self.down:
            hidden, level = stage(hidden, time, past)
            kept.append(level)
        for stage in self.mid:
            hidden, _ = stage(hidden, time, past)
        return self.projection(self.final(self._widened(hidden, kept, time, past)))

    def _widened(self, hidden: Tensor, kept: Sequence[Tensor], time: Tensor, past: Past) -> Tensor:
        """On the way out, each level joins what was kept of it on the way in."""
        for stage, level in zip(self.up, reversed(kept), strict=True):
            hidden, _ = stage(torch.cat([hidden[:, : level.shape[1]], level], dim=-1), time, past)
        return hidden


def _up_conv(channels: int, *, is_last: bool) -> nn.Module:
    return SameConv(channels, channels) if is_last else DoublingConv(channels)
