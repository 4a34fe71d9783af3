"""Keys and values of blocks that are done, in pages of one block: tensors on the flow's device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from cosyvoice_runtime.flow.page_store import (
    FIRST_PAGE,
    PageStore,
    PastLayout,
    Tail,
)
from cosyvoice_runtime.flow.torch.call_pages import CODE_TYPE, SCALE_TYPE, PagePlaces, keep, kept
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.layers import Before, GatheredPages, RelativeAttention
from cosyvoice_runtime.gpu.transfer import untouched_zeros


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

    Tails are the last input frames of every convolution. A call leaves them in the last page that it fills,
    and the next call reads them there; the page of zeros has those of an utterance's start.

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
            flow.network.estimator.layout, flow.solver.num_steps, flow.config.guidance_rows, chunk_frames
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
        """None: tails are in the pages."""

    def clear(self, page: int) -> None:
        for storage in self._pages:
            storage[page].zero_()


class PagedPast:
    """Past of a batch of utterances that continue at different positions (one network part, one step).

    Args:
        places: pages of the rows, at this step.
        tails: ``[B, tail_size]`` read; ``new_tails`` alike written.
        lengths: int64 ``[B]`` new frames of each row; None where all are T.
        starts: int64 ``[B]`` frames of each row's utterance before the new ones, for networks that ask.
        relative: attends in layers with relative positions; None leaves it to them.
    """

    def __init__(
        self,
        places: PagePlaces,
        tails: Tensor,
        new_tails: Tensor,
        lengths: Tensor | None,
        starts: Tensor | None = None,
        relative: RelativeAttention | None = None,
    ) -> None:
        self.starts = starts
        self.relative = relative
        self._places = places
        self._num_keys = places.before * places.page_frames + places.new_frames
        self._tails, self._new_tails, self._lengths = tails, new_tails, lengths
        self._last: dict[int, tuple[Tensor, Tensor]] = {}

    def extend(self, tail: Tail, x: Tensor) -> Tensor:
        place = slice(tail.offset, tail.offset + tail.size)
        before = self._tails[:, place].unflatten(1, (tail.frames, tail.channels))
        extended = torch.cat([before, x], dim=1)
        self._new_tails[:, place] = self._last_frames(extended, tail.frames).flatten(1)
        return extended

    def keys_values(self, attention: int, new: Tensor) -> tuple[Tensor, Tensor]:
        places = self._places
        keep(places.pages, places.scales, attention, places.page, places.frame, new)
        seen = kept(places.pages, places.scales, attention, places.table, new.dtype)[:, : self._num_keys]
        return seen[:, :, 0], seen[:, :, 1]

    @property
    def frames(self) -> int:
        """Frames of the longest row, in whole pages."""
        return self._places.before * self._places.page_frames

    def before(self, layout: PastLayout, x: Tensor, new: int) -> Before:  # noqa: ARG002
        """All of it in whole tensors; S is 0 where no row has a page yet."""
        places = self._places
        if not places.before:
            nothing = places.pages.new_zeros(layout.attentions, len(x), 0, layout.heads, layout.head_dim)
            return Before(nothing, nothing, self._tails, self._ends())
        table = places.table[:, : places.before]
        keys, values = (GatheredPages(places.pages[:, :, :, side], table) for side in range(2))
        return Before(keys, values, self._tails, self._ends())

    def store(self, keys: Tensor, values: Tensor, tails: Tensor) -> None:
        """Keep what the input adds: keys and values ``[A, B, T, H, D]`` and tails ``[B, tail_size]``."""
        for side, new in enumerate((keys, values)):
            self._places.pages[self._places.page, :, self._places.frame, side] = new.permute(1, 2, 0, 3, 4)
        self._new_tails.copy_(tails)

    def _ends(self) -> Tensor:
        if self._lengths is not None:
            return self._lengths
        rows, frames = self._places.page.shape
        return torch.full((rows,), frames, device=self._tails.device)

    def _last_frames(self, extended: Tensor, frames: int) -> Tensor:
        """The last ``frames`` valid frames of each row ``[B, frames + T, C]``."""
        if self._lengths is None:
            return extended[:, -frames:]
        if frames not in self._last:
            rows = torch.arange(len(extended), device=extended.device)[:, None]
            self._last[frames] = rows, self._lengths[:, None] + torch.arange(frames, device=extended.device)
        return extended[self._last[frames]]
