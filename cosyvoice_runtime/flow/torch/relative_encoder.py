"""CosyVoice-300M's encoder: relative attention over all steps, or over those before each."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config_lm import RelativeEncoderConfig
from cosyvoice_runtime.flow.past_layout import PastLayout
from cosyvoice_runtime.flow.torch.encoder import EncoderLayer, RelativePositions, ScaledEmbedding
from cosyvoice_runtime.flow.torch.layers import NoPast


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
