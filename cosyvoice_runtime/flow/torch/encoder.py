"""Encoders of the flow: speech-token embeddings at 25 Hz in, hidden states out.

CosyVoice2's conformer gives them at 50 Hz: two stacks of relative-position attention layers, the second
after repeating every frame twice. There is no convolution module and no half-step feed-forward; the only look
at the future beyond the attention mask is the look-ahead layer's three tokens. CosyVoice3 has that layer
alone, and CosyVoice-300M one stack without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config_flow import EncoderConfig, LookAheadConfig
from cosyvoice_runtime.checkpoint.config_lm import RelativeEncoderConfig
from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.flow.torch.call_pages import PagePlaces
from cosyvoice_runtime.flow.torch.layers import (
    CausalConv,
    NoPast,
    Past,
    RelativeAttention,
    WindowedLinear,
    attend,
    split_heads,
)

UPSAMPLE_TAPS = 5
LOOKAHEAD_SLOPE = 0.01
LAYER_NORM_EPS = 1e-12


class ScaledEmbedding(nn.Module):
    """Linear, LayerNorm, times the square root of the width."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width_in, width)
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.scale = math.sqrt(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x)) * self.scale


class LookAhead(nn.Module):
    """Mixes the next tokens into each token: a convolution to the right, then one to the left."""

    def __init__(self, width: int, tokens: int, layout: PastLayout, channels: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.right = WindowedLinear(width, channels, tokens + 1)
        self.left = CausalConv(channels, width, 3, layout)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """``x [B, T + tokens, C]`` to ``[B, T, C]``; the first token begins a block."""
        ahead = F.leaky_relu(self.right(x), LOOKAHEAD_SLOPE)
        return self.left(ahead, past) + x[:, : ahead.shape[1]]


class EncoderLayer(nn.Module):
    """Pre-norm attention with Transformer-XL relative positions, then a SiLU feed-forward."""

    def __init__(self, config: EncoderConfig | RelativeEncoderConfig, layout: PastLayout) -> None:
        super().__init__()
        width = config.width
        self.heads = config.num_heads
        self.head_dim = config.head_dim
        self.attention = layout.add_attention()
        self.norm_attention = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.qkv = nn.Linear(width, 3 * width)
        self.position = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(self.heads, self.head_dim))
        self.position_bias = nn.Parameter(torch.zeros(self.heads, self.head_dim))
        self.out = nn.Linear(width, width)
        self.norm_feed_forward = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.widen = nn.Linear(width, config.feed_forward_width)
        self.narrow = nn.Linear(config.feed_forward_width, width)

    def forward(self, x: Tensor, visible: Tensor | None, past: Past, positions: RelativePositions) -> Tensor:
        x = x + self._attention(self.norm_attention(x), visible, past, positions)
        return x + self.narrow(F.silu(self.widen(self.norm_feed_forward(x))))

    def _attention(
        self, x: Tensor, visible: Tensor | None, past: Past, positions: RelativePositions
    ) -> Tensor:
        queries, new = split_heads(self.qkv(x), self.heads)
        if past.relative is not None:
            return self.out(past.relative(self.attention, queries, new))
        keys, values = past.keys_values(self.attention, new)
        bias = self._position_scores(queries, keys.shape[1], positions)
        if visible is not None:
            bias = bias.masked_fill_(~visible, -torch.inf)
        return self.out(attend(queries + self.content_bias, keys, values, bias))

    def _position_scores(self, queries: Tensor, num_keys: int, positions: RelativePositions) -> Tensor:
        """Score by distance of each query ``[B, T, H, D]`` to each key: ``[B, H, T, S]``.

        The product runs over the ``T + S - 1`` distinct distances. Row i of it starts one distance
        earlier than row i - 1, so a strided view with rows one element shorter lines the keys up.
        """
        num_queries = queries.shape[1]
        distances = self.position(positions.like(queries, num_keys)).unflatten(
            -1, (self.heads, self.head_dim)
        )
        scores = torch.einsum("bthd,rhd->bhtr", queries + self.position_bias, distances)
        scores = (scores / math.sqrt(self.head_dim)).contiguous()
        batch, heads, _, span = scores.shape
        return scores.as_strided(
            (batch, heads, num_queries, num_keys),
            (heads * num_queries * span, num_queries * span, span - 1, 1),
            num_queries - 1,
        ).contiguous()  # GPU attention kernels read a bias in aligned rows


class RelativePositions:
    """:func:`relative_positions` of one call of a stack, computed by its first layer."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._table: Tensor | None = None

    def like(self, queries: Tensor, num_keys: int) -> Tensor:
        """For ``queries [B, T, H, D]``, of their type and on their device; the same sizes in every layer."""
        if self._table is None:
            table = relative_positions(queries.shape[1], num_keys, self._width, queries.device)
            self._table = table.to(queries.dtype)
        return self._table


def relative_positions(
    num_queries: int, num_keys: int, width: int, device: torch.device | str = "cpu"
) -> Tensor:
    """Sinusoid of the distances between the last ``num_queries`` of ``num_keys`` frames and all keys.

    Row m holds distance (query minus key) ``num_keys - 1 - m``: sine and cosine interleaved, with
    frequencies ``10000 ** (-2k / width)``.

    Returns:
        float32 ``[num_queries + num_keys - 1, width]``.
    """
    distance = torch.arange(num_keys - 1, -num_queries, -1, dtype=torch.float32, device=device)
    index = torch.arange(0, width, 2, dtype=torch.float32, device=device)
    frequency = torch.exp(index * (-math.log(10000.0) / width))
    angle = distance[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class PagedEncoder(NamedTuple):
    """Makers of relative attention over pages, without masks, for the stacks of a :class:`FlowEncoder`."""

    tokens: Callable[[PagePlaces], RelativeAttention]
    frames: Callable[[PagePlaces], RelativeAttention]


class FlowEncoder(nn.Module):
    """Both stacks. ``token_layout`` and ``frame_layout`` number the layers that look back."""

    def __init__(self, config: EncoderConfig, width_in: int, lookahead: int, frames_per_token: int) -> None:
        super().__init__()
        width = config.width
        self.frames_per_token = frames_per_token
        self.width = width
        self.token_layout = PastLayout(config.num_heads, config.head_dim)
        self.frame_layout = PastLayout(config.num_heads, config.head_dim)
        self.embed = ScaledEmbedding(width_in, width)
        self.look_ahead = LookAhead(width, lookahead, self.token_layout, width)
        self.layers = nn.ModuleList(EncoderLayer(config, self.token_layout) for _ in range(config.num_layers))
        self.upsample = CausalConv(width, width, UPSAMPLE_TAPS, self.frame_layout)
        self.up_embed = ScaledEmbedding(width, width)
        self.up_layers = nn.ModuleList(
            EncoderLayer(config, self.frame_layout) for _ in range(config.num_up_layers)
        )
        self.norm = nn.LayerNorm(width, eps=1e-5)

    def forward(
        self,
        x: Tensor,
        present: Tensor,
        visible_tokens: Tensor | None,
        visible_frames: Tensor | None,
        token_past: Past,
        frame_past: Past,
    ) -> Tensor:
        """Encode tokens.

        Args:
            x: ``[B, T + lookahead, width_in]`` embeddings of the T tokens to encode and of those after them.
            present: bool ``[B, T + lookahead]``; False past the end of an utterance, where the look-ahead
                sees zeros (after ``embed``).
            visible_tokens, visible_frames: bool masks of the two stacks; None lets all see all.

        Returns:
            ``[B, frames_per_token * T, width]``.
        """
        x = self.embed(x) * present[:, :, None]
        x = self.look_ahead(x, token_past)
        positions = RelativePositions(self.width)
        for layer in self.layers:
            x = layer(x, visible_tokens, token_past, positions)
        x = x.repeat_interleave(self.frames_per_token, dim=1)
        x = self.up_embed(self.upsample(x, frame_past))
        positions = RelativePositions(self.width)
        for layer in self.up_layers:
            x = layer(x, visible_frames, frame_past, positions)
        return self.norm(x)


class LookAheadEncoder(nn.Module):
    """The look-ahead layer alone, each token's result for all its frames. Nothing in it attends."""

    def __init__(self, config: LookAheadConfig, width: int, lookahead: int, frames_per_token: int) -> None:
        super().__init__()
        self.frames_per_token = frames_per_token
        self.token_layout = PastLayout(heads=1, head_dim=1)
        self.frame_layout = PastLayout(heads=1, head_dim=1)
        self.look_ahead = LookAhead(width, lookahead, self.token_layout, config.channels)

    def forward(
        self,
        x: Tensor,
        present: Tensor,
        visible_tokens: Tensor | None,  # noqa: ARG002
        visible_frames: Tensor | None,  # noqa: ARG002
        token_past: Past,
        frame_past: Past,  # noqa: ARG002
    ) -> Tensor:
        """Encode tokens as :meth:`FlowEncoder.forward` does."""
        mixed = self.look_ahead(x * present[:, :, None], token_past)
        return mixed.repeat_interleave(self.frames_per_token, dim=1)


class RelativeEncoder(nn.Module):
    """Input layer, attention layers, norm."""

    def __init__(self, config: RelativeEncoderConfig) -> None:
        super().__init__()
        layout = PastLayout(config.num_heads, config.head_dim)
        self.width = config.width
        self.embed = ScaledEmbedding(config.width_in, config.width)
        self.layers = nn.ModuleList(EncoderLayer(config, layout) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.width, eps=1e-5)

    def forward(self, x: Tensor, *, causal: bool = False) -> Tensor:
        """``x [B, T, width_in]`` to ``[B, T, width]``; with ``causal``, no step sees a later one."""
        visible = None
        if causal:
            visible = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        x, past, positions = self.embed(x), NoPast(), RelativePositions(self.width)
        for layer in self.layers:
            x = layer(x, visible, past, positions)
        return self.norm(x)
