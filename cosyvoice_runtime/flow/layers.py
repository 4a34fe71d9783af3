"""Building blocks that the flow's encoder and estimator share. Time is axis 1: ``[B, T, C]``."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.flow.past import Past, PastLayout


class WindowedLinear(nn.Linear):
    """Convolution over time, written as one matrix product over windows of ``taps`` frames.

    Input ``[B, taps - 1 + T, C]``, output ``[B, T, C']``; the weight is the convolution's
    ``[C', C, taps]`` with its last two axes swapped and joined.
    """

    def __init__(self, channels_in: int, channels_out: int, taps: int) -> None:
        super().__init__(channels_in * taps, channels_out)
        self.taps = taps

    def forward(self, x: Tensor) -> Tensor:
        windows = x.unfold(1, self.taps, 1).transpose(2, 3).flatten(2)
        return super().forward(windows)


class CausalConv(nn.Module):
    """Convolution that sees the present frame and the ``taps - 1`` before it."""

    def __init__(self, channels_in: int, channels_out: int, taps: int, layout: PastLayout) -> None:
        super().__init__()
        self.window = WindowedLinear(channels_in, channels_out, taps)
        self.tail = layout.add_tail(taps - 1, channels_in)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """``x [B, T, C]`` to ``[B, T, C']``."""
        return self.window(past.extend(self.tail, x))


def attend(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """Scaled dot-product attention.

    Args:
        queries: ``[B, T, H, D]``; keys and values: ``[B, S, H, D]``.
        bias: bool (True: visible) or float (added to the scaled scores), broadcast to ``[B, H, T, S]``.

    Returns:
        ``[B, T, H * D]``.
    """
    mixed = F.scaled_dot_product_attention(
        queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), attn_mask=bias
    )
    return mixed.transpose(1, 2).flatten(2)


def split_heads(packed: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Queries ``[B, T, H, D]``, keys and values ``[B, T, 2, H, D]`` of a projection ``[B, T, 3 * H * D]``."""
    split = packed.unflatten(-1, (3, heads, -1))
    return split[:, :, 0], split[:, :, 1:]
