"""CosyVoice3's velocity estimator: a diffusion transformer (arXiv 2212.09748) over mel frames.

Blocks of attention and feed-forward whose norms are shifted, scaled and gated by the time alone. Order comes
from two causal convolutions and from a rotation of positions, which the published network applies to the
channels of the first head only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config_flow import DiTConfig
from cosyvoice_runtime.checkpoint.schema_flow import POSITION_GROUPS, POSITION_KERNEL, TIME_SINUSOID
from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.flow.torch.estimator import time_sinusoid
from cosyvoice_runtime.flow.torch.layers import Past, attend, visible_bias, wide

NORM_EPS = 1e-6
ROTARY_BASE = 10_000.0
BLOCK_MODULATIONS, FINAL_MODULATIONS = 6, 2
"""Vectors that the time gives to a block, and to the norm at the end."""


class GroupedConv(nn.Module):
    """Causal convolution in groups of channels, then Mish."""

    def __init__(self, channels: int, layout: PastLayout) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, POSITION_KERNEL, groups=POSITION_GROUPS)
        self.tail = layout.add_tail(POSITION_KERNEL - 1, channels)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """``x [B, T, C]`` to the same shape."""
        return F.mish(self.conv(past.extend(self.tail, x).transpose(1, 2)).transpose(1, 2))


class Rotation(NamedTuple):
    """Cosine and sine of each frame's angles, float32 ``[B or 1, T, 1, D / 2]``."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, frames: Tensor, head_dim: int) -> Rotation:
        """The rotation of absolute frame numbers ``[B or 1, T]``."""
        exponents = torch.arange(0, head_dim, 2, device=frames.device, dtype=torch.float32) / head_dim
        angles = frames[..., None, None].float() * (1.0 / ROTARY_BASE**exponents)
        return cls(angles.cos(), angles.sin())

    def rotate_(self, x: Tensor) -> None:
        """Rotate pairs of neighbouring channels of ``x [B, T, N, D]`` in place."""
        even, odd = x.unflatten(-1, (-1, 2)).float().unbind(-1)
        rotated = torch.stack([even * self.cos - odd * self.sin, odd * self.cos + even * self.sin], dim=-1)
        x.copy_(rotated.flatten(-2))


class DiTBlock(nn.Module):
    """Attention and a GELU feed-forward, each behind a norm that the time shifts and scales, and a gate."""

    def __init__(self, config: DiTConfig, layout: PastLayout) -> None:
        super().__init__()
        width, inner = config.width, config.inner_width
        self.heads = config.num_heads
        self.attention = layout.add_attention()
        self.qkv = nn.Linear(width, 3 * inner)
        self.out = nn.Linear(inner, width)
        self.widen = nn.Linear(width, config.feed_forward_factor * width)
        self.narrow = nn.Linear(config.feed_forward_factor * width, width)

    def forward(
        self, x: Tensor, modulations: Sequence[Tensor], visible: Tensor | None, past: Past, rotation: Rotation
    ) -> Tensor:
        """The residual ``x [B, T, C]``; six ``modulations [B or 1, 1, C]``: shift, scale and gate of each
        part. All are float32 at least."""
        shift, scale, gate, wide_shift, wide_scale, wide_gate = modulations
        dtype = self.qkv.weight.dtype
        x = x + gate * self._attention(modulated(x, scale, shift, dtype), visible, past, rotation)
        widened = F.gelu(self.widen(modulated(x, wide_scale, wide_shift, dtype)), approximate="tanh")
        return x + wide_gate * self.narrow(widened)

    def _attention(self, x: Tensor, visible: Tensor | None, past: Past, rotation: Rotation) -> Tensor:
        split = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        rotation.rotate_(split[:, :, :2, 0])  # query and key of the first head
        keys, values = past.keys_values(self.attention, split[:, :, 1:])
        return self.out(attend(split[:, :, 0], keys, values, visible))


def modulated(x: Tensor, scale: Tensor, shift: Tensor, dtype: torch.dtype) -> Tensor:
    """LayerNorm without weights of its own, then scale and shift, and only then in the network's type."""
    return (F.layer_norm(x, x.shape[-1:], eps=NORM_EPS) * (1 + scale) + shift).to(dtype)


class TimeLayers(nn.Module):
    """All that a time changes: what it gives to each block, and to the norm at the end; float32 at least."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        width = config.width
        self.first = nn.Linear(TIME_SINUSOID, width)
        self.second = nn.Linear(width, width)
        self.blocks = nn.ModuleList(nn.Linear(width, BLOCK_MODULATIONS * width) for _ in range(config.depth))
        self.final = nn.Linear(width, FINAL_MODULATIONS * width)

    def forward(self, t: Tensor) -> Tensor:
        """``t [B]`` to ``[6 * blocks + 2, B, C]``."""
        sinusoid = time_sinusoid(t, TIME_SINUSOID).to(self.first.weight.dtype)
        active = F.silu(self.second(F.silu(self.first(sinusoid))))
        joined = torch.cat([layer(active) for layer in (*self.blocks, self.final)], dim=1)
        return joined.unflatten(1, (-1, active.shape[1])).transpose(0, 1).contiguous()


class DiT(nn.Module):
    """dx/dt of the noisy mel x at time t, given the mixed tokens, the voice and the prompt's mel."""

    def __init__(self, config: DiTConfig, mel_bins: int) -> None:
        super().__init__()
        width = config.width
        self.head_dim = config.head_dim
        self.layout = PastLayout(config.num_heads, config.head_dim)
        self.time: TimeLayers | None = TimeLayers(config)
        self.input = nn.Linear(4 * mel_bins, width)
        self.positions = nn.ModuleList(GroupedConv(width, self.layout) for _ in range(2))
        self.blocks = nn.ModuleList(DiTBlock(config, self.layout) for _ in range(config.depth))
        self.projection = nn.Linear(width, mel_bins)

    def time_biases(self, t: Tensor) -> Tensor:
        """All that the time ``t [B]`` in [0, 1] changes: ``[6 * blocks + 2, B, C]``, float32 at least.

        In the order of use: six vectors for each block, then scale and shift of the norm at the end.

        Raises:
            ValueError: after :meth:`drop_time_layers`.
        """
        if self.time is None:
            raise ValueError("this estimator's layers of the time were dropped")
        return wide(self.time(t))

    def drop_time_layers(self) -> None:
        """Free what only :meth:`time_biases` needs: two fifths of the published network."""
        self.time = None

    def mask(self, visible: Tensor) -> Tensor:
        """Mask for :meth:`forward`, of bool ``[B, 1, T, S]``, which every block would convert anew."""
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
        """Velocity of every frame; as :meth:`Estimator.forward
        <cosyvoice_runtime.flow.torch.estimator.Estimator.forward>`.

        Args:
            time_biases: ``[6 * blocks + 2, B or 1, C]`` of :meth:`time_biases`.
        """
        voice = speaker[:, None].expand(-1, x.shape[1], -1)
        hidden = self.input(torch.cat([x, condition, mu, voice], dim=-1))
        order = hidden
        for conv in self.positions:
            order = conv(order, past)
        hidden = wide(hidden) + order
        rotation = Rotation.of(self._frames(x, past), self.head_dim)
        *of_blocks, scale, shift = time_biases[:, :, None].unbind()
        for index, block in enumerate(self.blocks):
            modulations = of_blocks[BLOCK_MODULATIONS * index : BLOCK_MODULATIONS * (index + 1)]
            hidden = block(hidden, modulations, visible, past, rotation)
        return self.projection(modulated(hidden, scale, shift, self.projection.weight.dtype))

    def _frames(self, x: Tensor, past: Past) -> Tensor:
        """Numbers of the input's frames, counted from the start of each utterance."""
        frames = torch.arange(x.shape[1], device=x.device)[None]
        return frames if past.starts is None else past.starts[:, None] + frames
