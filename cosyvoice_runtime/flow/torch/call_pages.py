"""Where a call of the flow finds keys, values and tails of earlier calls and leaves new ones; their codes.

In 8 bits, keys and values are whole numbers of -127 to 127, and each head of a frame has the size of a step.
That is of its own largest number, so what is lost is some 0.6 % of what a head's numbers are in the mean, and
of a mel a sixth of what ``float8_e4m3`` with its fraction of three bits loses. Attention sees keys and values
as they are kept, also those of its own block, so chunks of any size give the same mel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from cosyvoice_runtime.flow.torch.layers import NoPast

LARGEST_CODE = 127
CODE_TYPE, SCALE_TYPE = torch.int8, torch.float16


def coded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and scales, int8 ``[..., D]`` and float16 ``[...]``, of heads ``[..., D]``."""
    exact = x.float()
    scales = (exact.abs().amax(-1) * (1 / LARGEST_CODE)).to(SCALE_TYPE)
    steps = scales.float().masked_fill(scales == 0, 1)[..., None]
    codes = torch.floor(exact / steps + 0.5).clamp(-LARGEST_CODE, LARGEST_CODE)
    return codes.to(CODE_TYPE), scales


def decoded(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Heads ``[..., D]`` of :func:`coded`."""
    return codes.to(dtype) * scales.to(dtype)[..., None]


def keep(
    pages: Tensor, scales: Tensor | None, attention: int, page: Tensor, frame: Tensor, new: Tensor
) -> None:
    """Store a layer's keys and values; can be captured.

    Args:
        pages: ``[pages, A, frames, 2, H, D]``.
        scales: float16 ``[pages, A, 2, H, frames]`` of pages in 8 bits; None where they are not coded.
        page, frame: where, int64 ``[R, T]`` and ``[T]``.
        new: ``[R, T, 2, H, D]``.
    """
    if scales is None:
        pages[:, attention][page, frame] = new.to(pages.dtype)
        return
    codes, of_heads = coded(new)
    pages[:, attention][page, frame] = codes
    scales[:, attention][page, :, :, frame] = of_heads


def kept(pages: Tensor, scales: Tensor | None, attention: int, table: Tensor, dtype: torch.dtype) -> Tensor:
    """Values that :func:`keep` stored in the pages ``table [R, W]``: ``[R, W * frames, 2, H, D]``."""
    stored = pages[:, attention][table]
    if scales is None:
        return stored.to(dtype).flatten(1, 2)
    return decoded(stored, scales[:, attention][table].permute(0, 1, 4, 2, 3), dtype).flatten(1, 2)


def as_kept(x: Tensor) -> Tensor:
    """Values that pages give back of heads ``[..., D]``."""
    return decoded(*coded(x), x.dtype)


class NoPastCoded(NoPast):
    """The input is the start of the utterance, and attends to itself as pages would keep it."""

    def keys_values(self, attention: int, new: Tensor) -> tuple[Tensor, Tensor]:
        return super().keys_values(attention, as_kept(new))


class PageRows(NamedTuple):
    """Numbers of the pages of a call's rows in one network.

    Attributes:
        table: int64 ``[R, W]`` pages of each row, oldest first, aligned so that the new frames of every row
            start at the same page.
        page, frame: where the new frames are stored: page int64 ``[R, T]``, frame in it int64 ``[T]``.
        before: number of pages of the table before the new frames.
        unused: int64 ``[B]``, how many of those, at the start, an utterance does not have.
        lengths: int64 ``[B]`` new frames of each utterance, one at least.
    """

    table: Tensor
    page: Tensor
    frame: Tensor
    before: int
    unused: Tensor
    lengths: Tensor


@dataclass(frozen=True, eq=False)
class PagePlaces:
    """Pages of a call's rows in one network.

    Attributes:
        pages: ``[pages, attentions, frames, 2, H, D]``, keys before values; guidance rows and steps are pages
            of their own.
        scales: float16 ``[pages, attentions, 2, H, frames]`` of pages in 8 bits; None where pages are as the
            network computes.
        table, page, frame, before, unused, lengths: as :class:`PageRows` has them.
    """

    pages: Tensor
    table: Tensor
    page: Tensor
    frame: Tensor
    before: int
    unused: Tensor
    lengths: Tensor
    scales: Tensor | None = field(default=None, kw_only=True)

    def store(self, attention: int, new: Tensor, step: int = 0) -> None:
        """Keep keys and values ``[R, T, 2, H, D]`` of a layer at a step of the solver; can be captured."""
        keep(self.pages, self.scales, attention, self.page + step, self.frame, new)

    def seen(self, attention: int, step: int = 0) -> Tensor:
        """Keys and values of a row's pages, float32 ``[R, W * frames, 2, H, D]``."""
        return kept(self.pages, self.scales, attention, self.table + step, torch.float32)

    @property
    def rows(self) -> int:
        return len(self.table)

    @property
    def new_frames(self) -> int:
        """T, of the longest row."""
        return len(self.frame)

    @property
    def page_frames(self) -> int:
        return self.pages.shape[2]

    @property
    def blocks(self) -> int:
        """New pages of the longest row."""
        return -(-self.new_frames // self.page_frames)


@dataclass(frozen=True, eq=False)
class Places(PagePlaces):
    """Pages and tails of a call's rows, at the solver's first step; every step adds its number.

    Rows are those of the network: all utterances with guidance, then, if there is any, all without. Each
    utterance has at least as many new frames as a convolution looks back.

    Attributes:
        tails: ``[R, steps, tail_size]`` read; ``new_tails`` alike, written.
        tails_to: int64 ``[R]`` where the new tails go when all steps are done: pages times guidance rows.
    """

    tails: Tensor
    new_tails: Tensor
    tails_to: Tensor

    def keep_tails(self, stored: Tensor) -> None:
        """Leave the new tails in ``[pages, guidance rows, steps, tail_size]``; can be captured."""
        stored.flatten(0, 1).index_copy_(0, self.tails_to, self.new_tails)
