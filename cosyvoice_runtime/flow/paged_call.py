"""One call of the flow that continues utterances at different positions: masks, pages, tails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cosyvoice_runtime.flow.flow import Flow, FlowAttention
from cosyvoice_runtime.flow.paged_inputs import PagedInputs
from cosyvoice_runtime.flow.pages import WASTE_PAGE, PagedPast, PageGeometry, PagePool, Tails
from cosyvoice_runtime.flow.solver import Conditions


@dataclass(frozen=True)
class Started:
    """What all steps of the solver share.

    Attributes:
        conditions, mask: for both guidance rows.
        table, page: of the first step in the estimator's flattened pages; add a step's number for its own.
        frame: of each new frame in its page.
        ends: new frames of each row; None where all are as long as the call.
    """

    conditions: Conditions
    mask: Tensor | None
    table: Tensor
    page: Tensor
    frame: Tensor
    ends: Tensor | None


class Continued(NamedTuple):
    """
    Attributes:
        mel: float32 ``[B, frames, mel]``.
        tails: after the call, rows on axis 1.
    """

    mel: Tensor
    tails: Tails


class PagedCall:
    """The call's two parts, :meth:`start` and then every :meth:`step`, on memory that stays in place.

    Nothing in them depends on values that only the host knows, so they can be captured as CUDA graphs, and
    replayed after the inputs have been overwritten.

    Args:
        new_tails: where the tails go; by default into memory of the call's own.

    Attributes:
        mel: float32 ``[B, frames, mel]`` what the solver has so far.
        new_tails: those of the steps that are done.
    """

    def __init__(
        self, flow: Flow, pool: PagePool, inputs: PagedInputs, new_tails: Tails | None = None
    ) -> None:
        self._flow, self._pool, self._inputs = flow, pool, inputs
        shape, config = inputs.shape, flow.config
        frames = config.frames_per_token * shape.tokens
        self.mel = torch.zeros(shape.rows, frames, config.mel_bins, device=flow.device)
        self.new_tails = new_tails or Tails(*(torch.zeros_like(part) for part in inputs.tails.parts))
        self._index = torch.zeros(1, dtype=torch.int64, device=flow.device)

    def run(self) -> Continued:
        """All of it, without CUDA graphs."""
        started = self.start()
        for _ in range(self._flow.solver.num_steps):
            self.step(started)
        return Continued(self.mel, self.new_tails)

    def start(self) -> Started:
        """Encode the tokens; ``mel`` becomes the solver's noise."""
        flow, pool, inputs = self._flow, self._pool, self._inputs
        old, new = inputs.tails, self.new_tails
        visible = self._visible(pool.frames.frames)
        attention = FlowAttention(
            tokens=self._visible(pool.tokens.frames),
            frames=visible,
            estimator=visible,
            token_past=self._past(pool.token_pages, pool.tokens, old.tokens[0, :, 0], new.tokens[0, :, 0]),
            frame_past=self._past(pool.frame_pages, pool.frames, old.frames[0, :, 0], new.frames[0, :, 0]),
        )
        place = torch.arange(inputs.rows.tokens.shape[1], device=flow.device)
        mu = flow.encode(inputs.rows.tokens, place < inputs.rows.given[:, None], attention)
        self.mel.copy_(flow.noise(inputs.rows.starts, mu.shape[1]))
        self._index.zero_()
        guided = flow.solver.guided(flow.conditions(mu, inputs.speaker, inputs.prompt))
        places = self._places(pool.estimator)
        return Started(guided, flow.solver.mask(visible), *places, self._ends(pool.estimator))

    def step(self, started: Started) -> None:
        """One step of the solver on ``mel``, and on to the next."""
        pool, solver, index = self._pool, self._flow.solver, self._index
        geometry = pool.estimator
        old = self._inputs.tails.estimator.index_select(2, index).flatten(0, 2)
        new = torch.empty_like(old)
        past = PagedPast(
            pages=pool.estimator_pages.flatten(0, 2),
            table=started.table + index,
            page=started.page + index,
            frame=started.frame,
            pages_before=self._inputs.shape.before,
            tails=old,
            new_tails=new,
            lengths=started.ends,
        )
        self.mel.copy_(solver.step(self.mel, started.conditions, started.mask, past, index))
        self.new_tails.estimator.index_copy_(2, index, new.unflatten(0, (geometry.rows, -1)).unsqueeze(2))
        index.add_(1).remainder_(solver.num_steps)  # a capture runs it more often than there are steps

    def _past(self, pages: Tensor, geometry: PageGeometry, tails: Tensor, new_tails: Tensor) -> PagedPast:
        """Of a part of the network that has one row for an utterance and one step."""
        before = self._inputs.shape.before
        return PagedPast(
            pages.flatten(0, 2), *self._places(geometry), before, tails, new_tails, self._ends(geometry)
        )

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
        """bool ``[B, 1, T, S]``: keys that exist, up to the query's own chunk."""
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

    def _places(self, geometry: PageGeometry) -> tuple[Tensor, Tensor, Tensor]:
        """Page table ``[B', W]``, page ``[B', T]`` and place in it ``[T]`` of new frames, at the first step.

        Guidance rows and steps are flattened into the pages. Padded frames go to waste.
        """
        table, before = self._inputs.rows.page_table, self._inputs.shape.before
        frame = self._frames(geometry.frames)
        page = table[:, before:][:, frame // geometry.frames]
        page = torch.where(frame < self._lengths(geometry.frames)[:, None], page, WASTE_PAGE)

        def flattened(pages: Tensor) -> Tensor:
            rows = torch.cat([pages * geometry.rows + row for row in range(geometry.rows)])
            return rows * geometry.steps

        return flattened(table), flattened(page), frame % geometry.frames
