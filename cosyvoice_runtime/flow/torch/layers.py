"""Building blocks that the flow's encoder and estimator share. Time is axis 1: ``[B, T, C]``.

A causal convolution looks back a few frames, attention looks back over all of them. Both ask a
:class:`Past` for those frames, so one piece of network code computes whole utterances
(:class:`NoPast`: the input starts the utterance) and continues started ones
(:class:`~cosyvoice_runtime.flow.torch.pages.PagedPast`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.flow.page_store import ZERO_PAGE, PastLayout, Tail

RelativeAttention = Callable[[int, Tensor, Tensor], Tensor]
"""Attends with relative positions in the layers of a stack, over keys and values that it keeps itself.

It takes the layer's number, queries ``[B, T, H, D]`` and the input's keys and values ``[B, T, 2, H, D]``, and
gives ``[B, T, H * D]``."""


class Past(Protocol):
    """Frames before the current input, for each row of a batch."""

    def extend(self, tail: Tail, x: Tensor) -> Tensor:
        """Put the ``tail.frames`` frames before ``x [B, T, C]`` in front of it: ``[B, frames + T, C]``."""

    def keys_values(self, attention: int, new: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values ``[B, S, H, D]`` to look at, given those of the input, ``[B, T, 2, H, D]``."""

    @property
    def relative(self) -> RelativeAttention | None:
        """Takes the place of :meth:`keys_values` and of masks in layers with relative positions, if there."""

    @property
    def frames(self) -> int:
        """Frames of the longest row."""

    @property
    def starts(self) -> Tensor | None:
        """Frames of each row's utterance before the input, int64 ``[B]``; None where it starts there."""

    def before(self, layout: PastLayout, x: Tensor, new: int) -> Before:
        """All of it in whole tensors.

        Args:
            x: the input ``[B, ...]``, for its type and device; ``new``: frames of it to keep.
        """

    def store(self, keys: Tensor, values: Tensor, tails: Tensor) -> None:
        """Keep what the input adds: keys and values ``[A, B, T, H, D]`` and tails ``[B, tail_size]``."""


@dataclass(frozen=True, eq=False)
class GatheredPages:
    """Keys or values ``[A, B, S, H, D]`` of a batch, read from their pages when they are wanted.

    Attributes:
        pages: ``[pages, A, frames, H, D]``.
        table: int64 ``[B, W]`` pages of each row, oldest first.
    """

    pages: Tensor
    table: Tensor

    @property
    def shape(self) -> torch.Size:
        _, attentions, frames, heads, size = self.pages.shape
        rows, width = self.table.shape
        return torch.Size((attentions, rows, width * frames, heads, size))

    @property
    def device(self) -> torch.device:
        return self.pages.device

    def rows(self, start: int, count: int) -> GatheredPages:
        """``count`` of the B rows."""
        return GatheredPages(self.pages, self.table[start : start + count])

    def padded(self, rows: int, frames: int) -> GatheredPages:
        """Add zeros in front of the S frames and rows of zeros after the last; a ValueError for no whole
        pages."""
        width, rest = divmod(frames, self.pages.shape[2])
        if rest:
            raise ValueError(f"{frames} frames are no whole pages of {self.pages.shape[2]}")
        missing = (width - self.table.shape[1], 0, 0, rows - self.table.shape[0])
        return GatheredPages(self.pages, F.pad(self.table, missing, value=ZERO_PAGE))

    def into(self, out: Tensor) -> Tensor:
        """Write the values into a contiguous tensor of this shape and type, which is returned."""
        attentions, _, _, heads, size = self.shape
        flat = out.view(attentions, self.table.numel(), self.pages.shape[2], heads, size)
        torch.index_select(self.pages.transpose(0, 1), 1, self.table.flatten(), out=flat)
        return out

    def whole(self) -> Tensor:
        """The values in a tensor of their own."""
        return self.into(self.pages.new_empty(self.shape))


@dataclass(frozen=True, eq=False)
class Before:
    """A past in whole tensors, for networks that take it at once.

    Attributes:
        keys, values: ``[A, B, S, H, D]`` of all attention layers, oldest frame first.
        tails: ``[B, tail_size]`` last input frames of all convolutions.
        lengths: int64 ``[B]`` valid frames of the input that follows.
    """

    keys: Tensor | GatheredPages
    values: Tensor | GatheredPages
    tails: Tensor
    lengths: Tensor


class NoPast:
    """The input is the start of the utterance: zeros before it, nothing to attend to but itself."""

    def extend(self, tail: Tail, x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, tail.frames, 0))

    def keys_values(self, attention: int, new: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        return new[:, :, 0], new[:, :, 1]

    @property
    def relative(self) -> None:
        return None

    @property
    def frames(self) -> int:
        return 0

    @property
    def starts(self) -> None:
        return None

    def before(self, layout: PastLayout, x: Tensor, new: int) -> Before:
        nothing = x.new_zeros(layout.attentions, len(x), 0, layout.heads, layout.head_dim)
        tails = x.new_zeros(len(x), layout.tail_size)
        return Before(nothing, nothing, tails, torch.full((len(x),), new, device=x.device))

    def store(self, keys: Tensor, values: Tensor, tails: Tensor) -> None:
        """Nothing follows that would read it."""


def visible_keys(lengths: list[int], block: int | None, device: torch.device) -> Tensor | None:
    """Which frames see which, for utterances that start in this call.

    Args:
        lengths: valid frames of each row; the rows are padded on the right to the longest.
        block: frame i sees frame j iff ``j < (i // block + 1) * block``; None lets all see all.

    Returns:
        bool ``[B, 1, T, T]``, or None where every frame sees every frame.
    """
    frames = max(lengths)
    uneven = min(lengths) < frames
    if not uneven and (block is None or frames <= block):
        return None
    position = torch.arange(frames, device=device)
    visible = position[None, :] < torch.tensor(lengths, device=device)[:, None]
    visible = visible[:, None, None, :].expand(-1, 1, frames, -1)
    if block is None:
        return visible
    block_of = position // block
    return visible & (block_of[None, :] <= block_of[:, None])


def visible_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as :func:`attend` adds it to scores: 0 where visible, else -inf."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)


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


def wide(x: Tensor) -> Tensor:
    """``x`` in float32 at least: the type of residuals, whose channels may leave the range of float16."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def split_heads(packed: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Queries ``[B, T, H, D]``, keys and values ``[B, T, 2, H, D]`` of a projection ``[B, T, 3 * H * D]``."""
    split = packed.unflatten(-1, (3, heads, -1))
    return split[:, :, 0], split[:, :, 1:]


def embedding(rows: int, width: int) -> nn.Embedding:
    """``nn.Embedding``, which on the device "meta" draws no values.

    Networks are built there before their weights are read. Drawing imports all of torch's compiler
    then, which took 3 s of a start on an H200.
    """
    values = torch.empty(rows, width)
    if not values.is_meta:
        nn.init.normal_(values)
    return nn.Embedding.from_pretrained(values, freeze=False)
