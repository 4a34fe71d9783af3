"""CosyVoice-300M's length regulator: encoded tokens stretched to mel frames, then smoothed.

A group norm over all frames stands after each convolution, so that every frame depends on every token.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config_flow import RegulatedFlowConfig
from cosyvoice_runtime.checkpoint.schema_flow import REGULATOR_LAYERS


class LengthRegulator(nn.Module):
    """Stretches the prompt to its mel's frames, and the tokens after it so that chunks overlap exactly.

    The first and the last tokens of a chunk, as many as chunks have in common, are stretched alone: they have
    the same frames in both chunks.
    """

    def __init__(self, config: RegulatedFlowConfig) -> None:
        super().__init__()
        bins = config.mel_bins
        self.overlap_tokens = config.lookahead_tokens
        self.overlap_frames = config.frames(config.lookahead_tokens)
        self.convs = nn.ModuleList(nn.Conv1d(bins, bins, 3, padding=1) for _ in range(REGULATOR_LAYERS))
        self.norms = nn.ModuleList(nn.GroupNorm(1, bins) for _ in range(REGULATOR_LAYERS))
        self.last = nn.Conv1d(bins, bins, 1)

    def forward(self, prompt: Tensor, tokens: Tensor, prompt_frames: int, frames: int) -> Tensor:
        """Frames ``[B, prompt_frames + frames, bins]`` of encoded ``prompt [B, P, bins]`` and ``tokens``."""
        hidden = torch.cat([stretched(prompt, prompt_frames), self._stretched(tokens, frames)], dim=1)
        hidden = hidden.transpose(1, 2)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            hidden = F.mish(norm(conv(hidden)))
        return self.last(hidden).transpose(1, 2)

    def _stretched(self, tokens: Tensor, frames: int) -> Tensor:
        edge, edge_frames = self.overlap_tokens, self.overlap_frames
        if tokens.shape[1] <= 2 * edge:
            return stretched(tokens, frames)
        middle = stretched(tokens[:, edge:-edge], frames - 2 * edge_frames)
        first, last = stretched(tokens[:, :edge], edge_frames), stretched(tokens[:, -edge:], edge_frames)
        return torch.cat([first, middle, last], dim=1)


def stretched(encoded: Tensor, frames: int) -> Tensor:
    """``[B, T, C]`` interpolated linearly to ``[B, frames, C]``; both may be without steps."""
    if not encoded.shape[1]:
        return encoded
    return F.interpolate(encoded.transpose(1, 2), size=frames, mode="linear").transpose(1, 2)
