"""Keys and values of blocks that are done, in pages of one block: tensors on the flow's device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.flow.page_store import (
    FIRST_PAGE,
    GUIDANCE_ROWS,
    ZERO_PAGE,
    PageStore,
    PastLayout,
    Tail,
)
from cosyvoice_runtime.flow.torch.call_pages import CODE_TYPE, SCALE_TYPE, keep, kept
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.layers import Before, RelativeAttention
from cosyvoice_runtime.gpu.untouched_zeros import untouched_zeros


@dataclass(frozen=True)
class PageGeometry:
    """Sizes of one network part: its layers, solver steps, rows per utterance and frames per block."""

    layout: PastLayout
    steps: int
    rows: int
    frames: int

    @property
    def page_shape(self) -> tuple[int, ...]:
        layout = self.layout
        return (
            self.rows, self.steps, layout.attentions, self.frames, 2, layout.heads, layout.head_dim,
        )  # fmt: skip

    @property
    def scale_shape(self) -> tuple[int, ...]:
        layout = self.layout
        return (self.rows, self.steps, layout.attentions, 2, layout.heads, self.frames)

    @property
    def tail_shape(self) -> tuple[int, ...]:
        return (self.rows, self.steps, self.layout.tail_size)

    def in_network(self, pages: Tensor) -> Tensor:
        """Pages of utterances on axis 0 for each row of the network, at the first step.

        Rows and steps are flattened into the pages.
        """
        rows = torch.cat([pages * self.rows + row for row in range(self.rows)])
        return rows * self.steps


class PagePool(PageStore):
    """Pages that are allocated once, and in each the tails of an utterance behind it.

    Tails are the last input frames of every convolution. A call leaves them in the last page that it fills;
    whoever goes on after that page finds them there, behind the page of zeros those of an utterance's start.

    Attributes:
        token_pages, frame_pages, estimator_pages: ``[pages, *page_shape]`` of each part of the network, the
            estimator's in 8 bits where the flow says so.
        estimator_scales: those of such pages, float16 ``[pages, rows, steps, A, 2, H, frames]``; None
            otherwise.
        token_tails, frame_tails, estimator_tails: ``[pages, *tail_shape]``, alike.
    """

    def __init__(self, flow: Flow, num_pages: int) -> None:
        super().__init__(num_pages)
        encoder = flow.network.encoder
        block = flow.config.encoder.chunk_tokens
        chunk_frames = flow.config.frames_per_token * block
        self.tokens = PageGeometry(encoder.token_layout, 1, 1, block)
        self.frames = PageGeometry(encoder.frame_layout, 1, 1, chunk_frames)
        self.estimator = PageGeometry(
            flow.network.estimator.layout, flow.solver.num_steps, GUIDANCE_ROWS, chunk_frames
        )
        zeros = partial(untouched_zeros, num_pages + FIRST_PAGE, device=flow.device)
        parts = self.tokens, self.frames, self.estimator
        self.token_pages, self.frame_pages = (zeros(*part.page_shape, dtype=flow.dtype) for part in parts[:2])
        dtype = CODE_TYPE if flow.codes_pages else flow.dtype
        self.estimator_pages = zeros(*self.estimator.page_shape, dtype=dtype)
        self.estimator_scales = (
            zeros(*self.estimator.scale_shape, dtype=SCALE_TYPE) if flow.codes_pages else None
        )
        self.token_tails, self.frame_tails, self.estimator_tails = (
            zeros(*part.tail_shape, dtype=flow.dtype) for part in parts
        )

    @property
    def _pages(self) -> list[Tensor]:
        """Tensors that keep keys and values."""
        scales = [] if self.estimator_scales is None else [self.estimator_scales]
        return [self.token_pages, self.frame_pages, self.estimator_pages, *scales]

    @property
    def page_bytes(self) -> int:
        """Memory of one page, that is of one block of one utterance."""
        tails = self.token_tails, self.frame_tails, self.estimator_tails
        return sum(math.prod(part.shape[1:]) * part.element_size() for part in (*self._pages, *tails))

    def empty_tails(self) -> None:
        """They are in the pages."""

    def clear(self, page: int) -> None:
        for storage in self._pages:
            storage[page].zero_()


@dataclass(frozen=True, eq=False)
class GatheredPages:
    """Keys or values of the rows of a batch, read from their pages when they are wanted: the only copy.

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
        return GatheredPages(self.pages, self.table[start : start + count])

    def padded(self, rows: int, frames: int) -> GatheredPages:
        """
        Raises:
            ValueError: the frames are no whole pages.
        """
        width, rest = divmod(frames, self.pages.shape[2])
        if rest:
            raise ValueError(f"{frames} frames are no whole pages of {self.pages.shape[2]}")
        missing = (width - self.table.shape[1], 0, 0, rows - self.table.shape[0])
        return GatheredPages(self.pages, F.pad(self.table, missing, value=ZERO_PAGE))

    def into(self, out: Tensor) -> Tensor:
        attentions, _, _, heads, size = self.shape
        flat = out.view(attentions, self.table.numel(), self.pages.shape[2], heads, size)
        torch.index_select(self.pages.transpose(0, 1), 1, self.table.flatten(), out=flat)
        return out

    def whole(self) -> Tensor:
        return self.into(self.pages.new_empty(self.shape))


class PagedPast:
    """Past of a batch of utterances that continue at different positions (one network part, one step).

    Args:
        pages: ``[pages, attentions, frames, 2, H, D]``, keys before values; guidance rows and steps are pages
            of their own.
        table: int64 ``[B, W]`` pages of each row, oldest first, aligned so that the new frames of
            every row start at the same page.
        page, frame: where the new frames are stored: page int64 ``[B, T]``, frame in it int64 ``[T]``.
        pages_before: of the table, those before the new frames.
        tails: ``[B, tail_size]`` read; ``new_tails`` alike written.
        lengths: int64 ``[B]`` new frames of each row; None where all are T.
        starts: int64 ``[B]`` frames of each row's utterance before the new ones, for networks that ask.
        relative: attends in layers with relative positions; None leaves it to them.
        scales: of pages in 8 bits, float16 ``[pages, attentions, 2, H, frames]``.
    """

    def __init__(
        self,
        pages: Tensor,
        table: Tensor,
        page: Tensor,
        frame: Tensor,
        pages_before: int,
        tails: Tensor,
        new_tails: Tensor,
        lengths: Tensor | None,
        starts: Tensor | None = None,
        relative: RelativeAttention | None = None,
        scales: Tensor | None = None,
    ) -> None:
        self.starts = starts
        self.relative = relative
        self._pages, self._scales = pages, scales
        self._table = table
        self._page, self._frame = page, frame
        self._pages_before = pages_before
        self._num_keys = pages_before * pages.shape[2] + page.shape[1]
        self._tails = tails
        self._new_tails = new_tails
        self._lengths = lengths
        self._places: dict[int, tuple[Tensor, Tensor]] = {}

    def extend(self, tail: Tail, x: Tensor) -> Tensor:
        place = slice(tail.offset, tail.offset + tail.size)
        before = self._tails[:, place].unflatten(1, (tail.frames, tail.channels))
        extended = torch.cat([before, x], dim=1)
        self._new_tails[:, place] = self._last_frames(extended, tail.frames).flatten(1)
        return extended

    def keys_values(self, attention: int, new: Tensor) -> tuple[Tensor, Tensor]:
        pages, scales = self._pages, self._scales
        keep(pages, scales, attention, self._page, self._frame, new)
        seen = kept(pages, scales, attention, self._table, new.dtype)[:, : self._num_keys]
        return seen[:, :, 0], seen[:, :, 1]

    @property
    def frames(self) -> int:
        """Frames of the longest row, in whole pages."""
        return self._pages_before * self._pages.shape[2]

    def before(self, layout: PastLayout, x: Tensor, new: int) -> Before:  # noqa: ARG002
        """All of it in whole tensors; S is 0 where no row has a page yet."""
        if not self._pages_before:
            nothing = self._pages.new_zeros(layout.attentions, len(x), 0, layout.heads, layout.head_dim)
            return Before(nothing, nothing, self._tails, self._ends())
        table = self._table[:, : self._pages_before]
        keys, values = (GatheredPages(self._pages[:, :, :, side], table) for side in range(2))
        return Before(keys, values, self._tails, self._ends())

    def store(self, keys: Tensor, values: Tensor, tails: Tensor) -> None:
        """Keep what the input adds: keys and values ``[A, B, T, H, D]`` and tails ``[B, tail_size]``."""
        for side, new in enumerate((keys, values)):
            self._pages[self._page, :, self._frame, side] = new.permute(1, 2, 0, 3, 4)
        self._new_tails.copy_(tails)

    def _ends(self) -> Tensor:
        if self._lengths is not None:
            return self._lengths
        rows, frames = self._page.shape
        return torch.full((rows,), frames, device=self._page.device)

    def _last_frames(self, extended: Tensor, frames: int) -> Tensor:
        """The last ``frames`` valid frames of each row ``[B, frames + T, C]``."""
        if self._lengths is None:
            return extended[:, -frames:]
        if frames not in self._places:
            rows = torch.arange(len(extended), device=extended.device)[:, None]
            self._places[frames] = rows, self._lengths[:, None] + torch.arange(frames, device=extended.device)
        return extended[self._places[frames]]
