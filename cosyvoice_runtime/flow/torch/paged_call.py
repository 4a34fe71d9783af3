"""One call of the flow that continues utterances at different positions: masks, pages, tails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from cosyvoice_runtime.flow.page_store import WASTE_PAGE, ZERO_PAGE
from cosyvoice_runtime.flow.torch.call_inputs import PagedInputs
from cosyvoice_runtime.flow.torch.call_pages import PagePlaces, PageRows, Places
from cosyvoice_runtime.flow.torch.flow import Flow, FlowAttention
from cosyvoice_runtime.flow.torch.layers import RelativeAttention
from cosyvoice_runtime.flow.torch.pages import PagedPast, PageGeometry, PagePool
from cosyvoice_runtime.flow.torch.solver import Conditions


@dataclass(frozen=True)
class Started:
    """Tensors that all steps of the solver share.

    Attributes:
        conditions, mask: for all guidance rows.
        rows: of the estimator's flattened pages, at the first step; add a step's number for its own.
        ends: new frames of each row; None where all are as long as the call.
        starts: frames of each row's utterance before the new ones.
        tails_from, tails_to: int64 ``[R]``, pages at the first step whose tails are read and written.
    """

    conditions: Conditions
    mask: Tensor | None
    rows: PageRows
    ends: Tensor | None
    starts: Tensor
    tails_from: Tensor
    tails_to: Tensor


class SolverTails(NamedTuple):
    """The estimator's tails ``[R, steps, tail_size]``, read and written, while a :class:`PagedSolver` takes
    the steps."""

    old: Tensor
    new: Tensor

    @classmethod
    def of(cls, pool: PagePool, rows: int) -> SolverTails:
        """Zeros for so many utterances."""
        stored = pool.estimator_tails.flatten(0, 1)
        old, new = (stored.new_zeros(rows * pool.estimator.rows, *stored.shape[1:]) for _ in range(2))
        return cls(old, new)


class PagedSolver(Protocol):
    """Takes all of the solver's steps at once, over pasts in pages."""

    def solve(self, mel: Tensor, guided: Conditions, places: Places, steps: int | None = None) -> None:
        """Take ``mel``, float32 ``[B, T, mel]``, from noise to the solution, or as far as ``steps`` go."""

    def on(self, multiprocessors: int) -> PagedSolver:
        """A solver with the same weights for a partition of the GPU that has so many multiprocessors."""


class PagedCall:
    """The call's two parts, :meth:`start` and then every :meth:`step`, on memory that stays in place.

    Nothing in them depends on values that only the host knows, so they can be captured as CUDA graphs, and
    replayed after the inputs have been overwritten.

    Args:
        mel: where the solver works; by default memory of the call's own.
        tails: for a :class:`PagedSolver`; by default memory of the call's own.

    Attributes:
        mel: float32 ``[B, frames, mel]`` what the solver has so far.
    """

    def __init__(
        self,
        flow: Flow,
        pool: PagePool,
        inputs: PagedInputs,
        mel: Tensor | None = None,
        tails: SolverTails | None = None,
    ) -> None:
        self._flow, self._pool, self._inputs = flow, pool, inputs
        shape, config = inputs.shape, flow.config
        frames = config.frames_per_token * shape.tokens
        size = (shape.rows, frames, config.mel_bins)
        self.mel = torch.zeros(size, device=flow.device) if mel is None else mel
        self._tails = tails
        self._before = torch.zeros(size, device=flow.device)
        self._index = torch.zeros(1, dtype=torch.int64, device=flow.device)

    def run(self) -> Tensor:
        """All of it, without CUDA graphs; float32 ``[B, frames, mel]``."""
        started = self.start()
        for _ in range(self._flow.solver.num_steps):
            self.step(started)
        return self.mel

    def start(self, masked: bool = True) -> Started:
        """Encode the tokens; ``mel`` becomes the solver's noise.

        Args:
            masked: make the mask that :meth:`step` needs, and a :class:`PagedSolver` does not; nor does
                the flow's paged encoder, which is taken then.
        """
        flow, pool, inputs = self._flow, self._pool, self._inputs
        read, written = self._tail_pages()
        tokens, frames = (
            stored[:, 0, 0].index_select(0, read) for stored in (pool.token_tails, pool.frame_tails)
        )
        new_tokens, new_frames = torch.empty_like(tokens), torch.empty_like(frames)
        encoder = None if masked else flow.paged_encoder
        token_attention, frame_attention = (encoder.tokens, encoder.frames) if encoder else (None, None)
        masks = masked or not flow.encodes_any_past
        visible = self._visible(pool.frames.frames) if masks else None
        attention = FlowAttention(
            tokens=self._visible(pool.tokens.frames) if masks else None,
            frames=visible,
            estimator=visible,
            token_past=self._past(pool.token_pages, pool.tokens, tokens, new_tokens, token_attention),
            frame_past=self._past(pool.frame_pages, pool.frames, frames, new_frames, frame_attention),
        )
        place = torch.arange(inputs.rows.tokens.shape[1], device=flow.device)
        mu = flow.encode(inputs.rows.tokens, place < inputs.rows.given[:, None], attention)
        pool.token_tails[:, 0, 0].index_copy_(0, written, new_tokens)
        pool.frame_tails[:, 0, 0].index_copy_(0, written, new_frames)
        self.mel.copy_(flow.noise(inputs.rows.starts, mu.shape[1]))
        self._index.zero_()
        self._before.zero_()
        guided = flow.solver.guided(flow.conditions(mu, inputs.speaker, inputs.prompt))
        page_rows = self._page_rows(pool.estimator)
        mask = flow.solver.mask(visible) if masked else None
        starts = (inputs.rows.starts * flow.config.frames_per_token).repeat(pool.estimator.rows)
        tails = (pool.estimator.in_network(pages) for pages in (read, written))
        return Started(guided, mask, page_rows, self._ends(pool.estimator), starts, *tails)

    def step(self, started: Started) -> None:
        """One step of the solver on ``mel``, and on to the next."""
        pool, solver, index = self._pool, self._flow.solver, self._index
        tails = pool.estimator_tails.flatten(0, 2)
        old = tails.index_select(0, started.tails_from + index)
        new = torch.empty_like(old)
        rows = started.rows._replace(table=started.rows.table + index, page=started.rows.page + index)
        places = PagePlaces(self._estimator_pages, *rows, scales=self._scales)
        past = PagedPast(places, old, new, started.ends, started.starts)
        self.mel.copy_(solver.step(self.mel, started.conditions, started.mask, past, index, self._before))
        tails.index_copy_(0, started.tails_to + index, new)
        index.add_(1).remainder_(solver.num_steps)  # a capture runs it more often than there are steps

    def solver_places(self, started: Started) -> Places:
        """Where a :class:`PagedSolver` finds the past and leaves the new frames."""
        pool = self._pool
        tails = self._tails or SolverTails.of(pool, self._inputs.shape.rows)
        steps = self._flow.solver.num_steps
        torch.index_select(pool.estimator_tails.flatten(0, 1), 0, started.tails_from // steps, out=tails.old)
        return Places(
            self._estimator_pages,
            *started.rows,
            scales=self._scales,
            tails=tails.old,
            new_tails=tails.new,
            tails_to=started.tails_to // steps,
        )

    @property
    def _estimator_pages(self) -> Tensor:
        """The estimator's flattened pages."""
        return self._pool.estimator_pages.flatten(0, 2)

    @property
    def _scales(self) -> Tensor | None:
        """Scales of the estimator's flattened pages."""
        scales = self._pool.estimator_scales
        return None if scales is None else scales.flatten(0, 2)

    def _tail_pages(self) -> tuple[Tensor, Tensor]:
        """The last page before each row's new ones, and the last of those: int64 ``[B]``."""
        rows, before = self._inputs.rows, self._inputs.shape.before
        block = self._flow.config.encoder.chunk_tokens
        last = before + (rows.counts + block - 1) // block - 1
        written = rows.page_table.gather(1, last[:, None]).squeeze(1)
        read = rows.page_table[:, before - 1] if before else torch.full_like(written, ZERO_PAGE)
        return read, written

    def _past(
        self,
        pages: Tensor,
        geometry: PageGeometry,
        tails: Tensor,
        new_tails: Tensor,
        attention: Callable[[PagePlaces], RelativeAttention] | None,
    ) -> PagedPast:
        """Past of a part of the network that has one row for an utterance and one step."""
        places = PagePlaces(pages.flatten(0, 2), *self._page_rows(geometry))
        relative = None if attention is None else attention(places)
        return PagedPast(places, tails, new_tails, self._ends(geometry), relative=relative)

    def _ends(self, geometry: PageGeometry) -> Tensor | None:
        """New frames of each row of the network; None where all are as long as the call."""
        if not self._inputs.shape.masked:
            return None
        return self._lengths(geometry.frames).repeat(geometry.rows)

    def _lengths(self, page_frames: int) -> Tensor:
        return self._inputs.rows.counts * (page_frames // self._flow.config.encoder.chunk_tokens)

    def _frames(self, page_frames: int) -> Tensor:
        """Numbers of the new frames."""
        per_token = page_frames // self._flow.config.encoder.chunk_tokens
        return torch.arange(per_token * self._inputs.shape.tokens, device=self._flow.device)

    def _visible(self, page_frames: int) -> Tensor | None:
        """bool ``[B, 1, T, S]``: keys that exist, up to the query's own block."""
        shape = self._inputs.shape
        if not shape.masked:
            return None
        query = self._frames(page_frames)
        position = shape.before * page_frames
        key = torch.arange(position + len(query), device=query.device)
        first = self._inputs.rows.missing[:, None] * page_frames
        end = position + self._lengths(page_frames)[:, None]
        exists = (key >= first) & (key < end)
        causal = key // page_frames <= shape.before + query[:, None] // page_frames
        return exists[:, None, None, :] & causal

    def _page_rows(self, geometry: PageGeometry) -> PageRows:
        """Where new frames go and what they look back on, at the first step; padded frames go to waste."""
        rows, before = self._inputs.rows, self._inputs.shape.before
        frame, lengths = self._frames(geometry.frames), self._lengths(geometry.frames)
        page = rows.page_table[:, before:][:, frame // geometry.frames]
        page = torch.where(frame < lengths[:, None], page, WASTE_PAGE)
        return PageRows(
            table=geometry.in_network(rows.page_table),
            page=geometry.in_network(page),
            frame=frame % geometry.frames,
            before=before,
            unused=rows.missing.contiguous(),
            lengths=lengths,
        )
