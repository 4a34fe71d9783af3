"""Where a call of the flow reads cached keys, values and tails, and where it writes new ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cosyvoice_runtime.flow.torch.page_codes import keep, kept


@dataclass(frozen=True, eq=False)
class PagePlaces:
    """Pages of a call's rows in one part of the network.

    Attributes:
        pages: ``[pages, attentions, frames, 2, H, D]``, keys before values; guidance rows and steps are pages
            of their own.
        scales: float16 ``[pages, attentions, 2, H, frames]`` of pages in 8 bits
            (:mod:`~cosyvoice_runtime.flow.torch.page_codes`); None where pages are as the network computes.
        table: int64 ``[R, W]`` pages of each row, oldest first, aligned so that the new frames of every row
            start at the same page.
        page, frame: where the new frames are stored: page int64 ``[R, T]``, frame in it int64 ``[T]``.
        before: of the table, the pages before the new frames.
        unused: int64 ``[B]`` of those, the first ones that an utterance does not have.
        lengths: int64 ``[B]`` new frames of each utterance, one at least.
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

    Rows are those of the network: all utterances with guidance, then all without. Each utterance has at least
    as many new frames as a convolution looks back.

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
