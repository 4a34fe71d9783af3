"""One call of the network over utterances at different positions: page tables, masks, tails."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cosyvoice_runtime.flow.flow import Attention, Flow, Span
from cosyvoice_runtime.flow.pages import WASTE_PAGE, ZERO_PAGE, PagedPast, PageGeometry, PagePool, Tails


class PagedBatch:
    """Everything that :meth:`Flow.solve` needs to continue the spans' utterances.

    Args:
        pages: of each utterance, those of its earlier chunks and those reserved for this span.
        tails: of each utterance, before this span.
    """

    def __init__(
        self,
        flow: Flow,
        pool: PagePool,
        spans: Sequence[Span],
        pages: Sequence[Sequence[int]],
        tails: Sequence[Tails],
    ) -> None:
        self._device = flow.device
        self._pool = pool
        self._chunk = flow.config.encoder.chunk_tokens
        self._counts = [span.count for span in spans]
        done = [span.start // self._chunk for span in spans]
        self._pages_before = max(done)
        self._unused_before = [self._pages_before - count for count in done]
        self._table = self._page_table(pages)
        self._tails = Tails(
            torch.stack([row.tokens for row in tails], dim=1),
            torch.stack([row.frames for row in tails], dim=1),
            torch.stack([row.estimator for row in tails], dim=1),
        )
        old = self._tails
        self._new_tails = Tails(*(torch.empty_like(x) for x in (old.tokens, old.frames, old.estimator)))

    def attention(self) -> Attention:
        pool, old, new = self._pool, self._tails, self._new_tails
        visible_frames = self._visible(pool.frames.frames)
        [token_past] = self._pasts(pool.tokens, pool.token_pages, old.tokens, new.tokens)
        [frame_past] = self._pasts(pool.frames, pool.frame_pages, old.frames, new.frames)
        steps = self._pasts(pool.estimator, pool.estimator_pages, old.estimator, new.estimator)
        return Attention(
            tokens=self._visible(pool.tokens.frames),
            frames=visible_frames,
            estimator=visible_frames,
            token_past=token_past,
            frame_past=frame_past,
            estimator_past=steps.__getitem__,
        )

    def new_tails(self) -> list[Tails]:
        """Tails after the call, for each utterance."""
        new = self._new_tails
        parts = zip(new.tokens.unbind(1), new.frames.unbind(1), new.estimator.unbind(1), strict=True)
        return [Tails(*tails) for tails in parts]

    def _page_table(self, pages: Sequence[Sequence[int]]) -> Tensor:
        """int64 ``[B, W]``: zero pages first, so that the new chunks of all rows line up."""
        rows = list(zip(self._unused_before, pages, strict=True))
        table = torch.full((len(rows), max(unused + len(held) for unused, held in rows)), ZERO_PAGE)
        for row, (unused, held) in enumerate(rows):
            table[row, unused : unused + len(held)] = torch.tensor(held)
        return table

    def _lengths(self, page_frames: int) -> list[int]:
        return [count * page_frames // self._chunk for count in self._counts]

    def _visible(self, page_frames: int) -> Tensor | None:
        """bool ``[B, 1, T, S]``: keys that exist, up to the query's own chunk."""
        lengths = self._lengths(page_frames)
        new = max(lengths)
        if new <= page_frames and min(lengths) == new and not any(self._unused_before):
            return None
        position = self._pages_before * page_frames
        key, query = torch.arange(position + new), torch.arange(new)
        first = torch.tensor(self._unused_before)[:, None] * page_frames
        end = position + torch.tensor(lengths)[:, None]
        exists = (key >= first) & (key < end)
        causal = key // page_frames <= self._pages_before + query[:, None] // page_frames
        return (exists[:, None, None, :] & causal).to(self._device)

    def _pasts(self, geometry: PageGeometry, pages: Tensor, old: Tensor, new: Tensor) -> list[PagedPast]:
        """Past of each solver step. Guidance rows are rows of the batch with pages of their own."""
        rows, frames = geometry.rows, geometry.frames
        page, frame = self._places(frames)
        table = torch.cat([self._table * rows + row for row in range(rows)]).to(self._device)
        page = torch.cat([page * rows + row for row in range(rows)]).to(self._device)
        lengths = self._lengths(frames) * rows
        return [
            PagedPast(
                pages=pages.flatten(0, 1)[:, step],
                table=table,
                num_keys=self._pages_before * frames + page.shape[1],
                places=(page, frame.to(self._device)),
                tails=old[:, :, step].flatten(0, 1),
                new_tails=new[:, :, step].flatten(0, 1),
                lengths=lengths,
            )
            for step in range(geometry.steps)
        ]

    def _places(self, page_frames: int) -> tuple[Tensor, Tensor]:
        """Where new frames are stored: page ``[B, T]`` and frame in it ``[T]``; padded ones go to waste."""
        lengths = torch.tensor(self._lengths(page_frames))[:, None]
        frame = torch.arange(int(lengths.max()))
        page = self._table[:, self._pages_before :][:, frame // page_frames]
        return torch.where(frame < lengths, page, WASTE_PAGE), frame % page_frames
