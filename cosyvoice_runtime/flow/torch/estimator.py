"""Velocity estimator of the flow: a causal U-Net over mel frames without resampling.

One down stage, the mid stages and one up stage, each a residual block of two causal convolutions
followed by transformer blocks. Attention has no positions at all; order comes from the convolutions.

The solver with classifier-free guidance (CosyVoice2 section 2.3) follows its velocities.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config_flow import EstimatorConfig, LevelConfig
from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.flow.torch.layers import (
    CausalConv,
    Past,
    attend,
    split_heads,
    visible_bias,
)

CONV_TAPS = 3
TIME_SCALE = 1000.0
FEED_FORWARD_FACTOR = 4


class ConvBlock(nn.Module):
    """Causal convolution, LayerNorm over channels, Mish."""

    def __init__(self, channels_in: int, channels: int, layout: PastLayout) -> None:
        super().__init__()
        self.conv = CausalConv(channels_in, channels, CONV_TAPS, layout)
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        return F.mish(self.norm(self.conv(x, past)))


class ResnetBlock(nn.Module):
    """Two convolution blocks with the time embedding added in between, and a linear shortcut."""

    def __init__(self, channels_in: int, channels: int, time_width: int, layout: PastLayout) -> None:
        super().__init__()
        self.time = nn.Linear(time_width, channels)
        self.first = ConvBlock(channels_in, channels, layout)
        self.second = ConvBlock(channels, channels, layout)
        self.shortcut = nn.Linear(channels_in, channels)

    def forward(self, x: Tensor, time_bias: Tensor, past: Past) -> Tensor:
        """``x [B, T, C]``; ``time_bias [B or 1, C]`` is ``self.time`` of the activated time embedding."""
        hidden = self.first(x, past) + time_bias[:, None, :]
        return self.second(hidden, past) + self.shortcut(x)


class TransformerBlock(nn.Module):
    """Pre-norm self-attention and a GELU feed-forward."""

    def __init__(self, config: EstimatorConfig | LevelConfig, layout: PastLayout) -> None:
        super().__init__()
        channels, inner = config.channels, config.num_heads * config.head_dim
        self.heads = config.num_heads
        self.attention = layout.add_attention()
        self.norm_attention = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * inner, bias=False)
        self.out = nn.Linear(inner, channels)
        self.norm_feed_forward = nn.LayerNorm(channels)
        self.widen = nn.Linear(channels, FEED_FORWARD_FACTOR * channels)
        self.narrow = nn.Linear(FEED_FORWARD_FACTOR * channels, channels)

    def forward(self, x: Tensor, visible: Tensor | None, past: Past) -> Tensor:
        queries, new = split_heads(self.qkv(self.norm_attention(x)), self.heads)
        keys, values = past.keys_values(self.attention, new)
        x = x + self.out(attend(queries, keys, values, visible))
        return x + self.narrow(F.gelu(self.widen(self.norm_feed_forward(x))))


class UNetStage(nn.Module):
    """A residual block and its transformer blocks."""

    def __init__(self, config: EstimatorConfig, channels_in: int, layout: PastLayout) -> None:
        super().__init__()
        self.resnet = ResnetBlock(channels_in, config.channels, config.time_width, layout)
        self.blocks = nn.ModuleList(TransformerBlock(config, layout) for _ in range(config.blocks_per_stage))

    def forward(self, x: Tensor, time_bias: Tensor, visible: Tensor | None, past: Past) -> Tensor:
        x = self.resnet(x, time_bias, past)
        for block in self.blocks:
            x = block(x, visible, past)
        return x


class Estimator(nn.Module):
    """dx/dt of the noisy mel x at time t, given the token encoding, the voice and the prompt's mel."""

    def __init__(self, config: EstimatorConfig, mel_bins: int) -> None:
        super().__init__()
        channels = config.channels
        self.layout = PastLayout(config.num_heads, config.head_dim)
        self.sinusoid_width = config.in_channels
        self.time_in = nn.Linear(config.in_channels, config.time_width)
        self.time_out = nn.Linear(config.time_width, config.time_width)
        width = config.time_width
        self.time_mixer = nn.Linear(2 * width, width, bias=False) if config.meanflow else None
        self.down = UNetStage(config, config.in_channels, self.layout)
        self.down_conv = CausalConv(channels, channels, CONV_TAPS, self.layout)
        self.mid = nn.ModuleList(
            UNetStage(config, channels, self.layout) for _ in range(config.num_mid_stages)
        )
        self.up = UNetStage(config, 2 * channels, self.layout)
        self.up_conv = CausalConv(channels, channels, CONV_TAPS, self.layout)
        self.final = ConvBlock(channels, channels, self.layout)
        self.projection = nn.Linear(channels, mel_bins)

    def time_biases(self, t: Tensor, ends: Tensor | None = None) -> Tensor:
        """Addends of every stage for time ``t [B]`` in [0, 1]: ``[stages, B, C]``.

        Depends on the time alone, so a solver with fixed steps computes it once per model.

        Args:
            ends: like ``t``, where each step ends: for a network that gives mean velocities.
        """
        embedding = self._time_embedding(t)
        if self.time_mixer is not None:
            assert ends is not None, "such a network needs both ends of a step"
            embedding = self.time_mixer(torch.cat([embedding, self._time_embedding(ends)], dim=-1))
        embedding = F.mish(embedding)
        return torch.stack([stage.resnet.time(embedding) for stage in (self.down, *self.mid, self.up)])

    def _time_embedding(self, t: Tensor) -> Tensor:
        sinusoid = time_sinusoid(t, self.sinusoid_width).to(self.time_in.weight.dtype)
        embedding: Tensor = self.time_out(F.silu(self.time_in(sinusoid)))
        return embedding

    def drop_time_layers(self) -> None:
        """Do nothing: they are small."""

    def mask(self, visible: Tensor) -> Tensor:
        """Mask for :meth:`forward`, of bool ``[B, 1, T, S]``, which every layer would convert anew."""
        return visible_bias(visible, self.projection.weight.dtype)

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        condition: Tensor,
        time_biases: Tensor,
        visible: Tensor | None,
        past: Past,
    ) -> Tensor:
        """Velocity of every frame.

        Args:
            x, mu, condition: ``[B, T, mel]`` noisy mel, token encoding, prompt mel (zeros after it).
            speaker: ``[B, mel]`` projected speaker embedding.
            time_biases: ``[stages, B or 1, C]`` from :meth:`time_biases`.
            visible: ``[B, 1, T, S]`` of :meth:`mask`, or None where every frame sees every key.

        Returns:
            ``[B, T, mel]``; meaningless on padded frames.
        """
        frames = x.shape[1]
        packed = torch.cat([x, mu, speaker[:, None, :].expand(-1, frames, -1), condition], dim=-1)
        skip = self.down(packed, time_biases[0], visible, past)
        hidden = self.down_conv(skip, past)
        for stage, bias in zip(self.mid, time_biases[1:-1], strict=True):
            hidden = stage(hidden, bias, visible, past)
        hidden = self.up(torch.cat([hidden, skip], dim=-1), time_biases[-1], visible, past)
        hidden = self.up_conv(hidden, past)
        return self.projection(self.final(hidden, past))


def time_sinusoid(t: Tensor, width: int) -> Tensor:
    """``[B]`` times in [0, 1] to float32 ``[B, width]``: sines, then cosines (DDPM, Ho et al. 2020)."""
    half = width // 2
    frequency = torch.exp(torch.arange(half, device=t.device) * (-math.log(10000.0) / (half - 1)))
    angle = TIME_SCALE * t.float()[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)
