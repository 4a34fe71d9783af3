"""One call of the flow that continues utterances at different positions: masks, pages, tails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.flow.estimator import Conditions
from cosyvoice_runtime.flow.flow import Flow, FlowAttention
from cosyvoice_runtime.flow.pages import FlowTails, PagedPast, PageGeometry, PagePool
from cosyvoice_runtime.flow.places import Places
from cosyvoice_runtime.free_pages import WASTE_PAGE, ZERO_PAGE
from cosyvoice_runtime.transfer import move
from cosyvoice_runtime.wave.prompt import TokenSpan


@dataclass(frozen=True)
class BatchShape:
    """Sizes of a call.

    Attributes:
        rows: utterances.
        tokens: new tokens of a row.
        before: finished blocks that a row looks back on.
        masked: rows may have fewer tokens or blocks, or more tokens than one block; otherwise everything sees
            everything.
    """

    rows: int
    tokens: int
    before: int
    masked: bool = True

    @classmethod
    def of(cls, spans: Sequence[TokenSpan], chunk_tokens: int) -> BatchShape:
        """The smallest that holds these stretches."""
        counts = [span.count for span in spans]
        before = [span.start // chunk_tokens for span in spans]
        uneven = min(counts) < max(counts) or min(before) < max(before)
        return cls(len(spans), max(counts), max(before), masked=uneven or max(counts) > chunk_tokens)

    def pages(self, chunk_tokens: int) -> int:
        """Of a row's table: those before and those of its new tokens."""
        return self.before + -(-self.tokens // chunk_tokens)


@dataclass(frozen=True, eq=False)
class RowIndices:
    """The whole numbers of every row of a call: int64, rows on axis 0.

    They travel to the device as columns of one tensor, because each transfer costs as much as a kernel.

    Attributes:
        given: ``[B]`` tokens that the row brings, look-ahead included.
        counts: ``[B]`` tokens to turn into mel.
        starts: ``[B]`` tokens of the utterance before them.
        missing: ``[B]`` pages at the start of the table that the row doesn't have.
        page_table: ``[B, P]``, aligned so that the new blocks of all rows start at the same page.
        tokens: ``[B, T + lookahead]``.
    """

    given: Tensor
    counts: Tensor
    starts: Tensor
    missing: Tensor
    page_table: Tensor
    tokens: Tensor

    @classmethod
    def unpack(cls, packed: Tensor, pages: int) -> RowIndices:
        """Views of ``[B, 4 + P + T + lookahead]``."""
        numbers, table, tokens = packed.tensor_split([4, 4 + pages], dim=1)
        given, counts, starts, missing = numbers.unbind(1)
        return cls(given, counts, starts, missing, table, tokens)


@dataclass(frozen=True, eq=False)
class PagedInputs:
    """What the rows of a call bring with them.

    Attributes:
        num_pages: of a row's page table.
        packed: int64, :class:`RowIndices` in one tensor.
        speaker: float32 ``[B, D]``.
        prompt: float32 ``[B, frames, mel]`` the prompt's mel, zeros after it.
        tails: before the call, rows on axis 1.
    """

    shape: BatchShape
    num_pages: int
    packed: Tensor
    speaker: Tensor
    prompt: Tensor
    tails: FlowTails

    @classmethod
    def of(
        cls,
        flow: Flow,
        shape: BatchShape,
        tails: FlowTails,
        spans: Sequence[TokenSpan] = (),
        pages: Sequence[Sequence[int]] = (),
    ) -> PagedInputs:
        """
        Args:
            tails: of all rows, before the call.
            spans: of the first rows; the others are without an utterance.
            pages: of each utterance, those of its earlier blocks and those reserved for this span.
        """
        config, pages_of_row = flow.config, shape.pages(flow.config.encoder.chunk_tokens)
        frames, columns = config.frames_per_token * shape.tokens, 4 + pages_of_row + _given(flow, shape)
        inputs = cls(
            shape=shape,
            num_pages=pages_of_row,
            packed=torch.zeros(shape.rows, columns, dtype=torch.int64, device=flow.device),
            speaker=torch.zeros(shape.rows, config.speaker_dim, device=flow.device),
            prompt=torch.zeros(shape.rows, frames, config.mel_bins, device=flow.device),
            tails=tails,
        )
        inputs.take(flow, spans, pages)
        return inputs

    def take(self, flow: Flow, spans: Sequence[TokenSpan], pages: Sequence[Sequence[int]]) -> None:
        """Overwrite all but the tails with what the first rows bring, as :meth:`of`."""
        block = flow.config.encoder.chunk_tokens
        move(_packed_rows(self.shape, _given(flow, self.shape), block, spans, pages), self.packed)
        speaker = np.zeros(self.speaker.shape, np.float32)
        if spans:
            speaker[: len(spans)] = [span.prompt.speaker for span in spans]
        move(torch.from_numpy(speaker), self.speaker)
        if all(span.start >= len(span.prompt.tokens) for span in spans):
            self.prompt.zero_()
        else:
            move(_prompt_frames(flow, self.prompt.shape, spans), self.prompt)

    def take_tails(self, tails: Sequence[FlowTails]) -> None:
        """Overwrite those of the first rows; the others, which nobody hears, get the first one's."""
        rows = [*tails, *[tails[0]] * (self.shape.rows - len(tails))]
        for mine, parts in zip(self.tails.parts, zip(*(row.parts for row in rows), strict=True), strict=True):
            torch.stack(parts, dim=1, out=mine)

    @cached_property
    def rows(self) -> RowIndices:
        """Views of the packed tensor: they follow when it is overwritten."""
        return RowIndices.unpack(self.packed, self.num_pages)


def _packed_rows(
    shape: BatchShape, given: int, block: int, spans: Sequence[TokenSpan], pages: Sequence[Sequence[int]]
) -> Tensor:
    """:class:`RowIndices` on the host; rows without an utterance compute too, into the waste page."""
    width = shape.pages(block)
    packed = np.zeros((shape.rows, 4 + width + given), np.int64)
    packed[:, :4] = given, shape.tokens, 0, shape.before
    table, tokens = packed[:, 4 : 4 + width], packed[:, 4 + width :]
    table[:, : shape.before], table[:, shape.before :] = ZERO_PAGE, WASTE_PAGE
    for row, (span, held) in enumerate(zip(spans, pages, strict=True)):
        missing = shape.before - span.start // block
        packed[row, :4] = len(span.tokens), span.count, span.start, missing
        table[row] = ZERO_PAGE
        table[row, missing : missing + len(held)] = held
        tokens[row, : len(span.tokens)] = span.tokens
    return torch.from_numpy(packed)


def _given(flow: Flow, shape: BatchShape) -> int:
    """Most tokens of a row."""
    return shape.tokens + flow.config.lookahead_tokens


def _prompt_frames(flow: Flow, size: Sequence[int], spans: Sequence[TokenSpan]) -> Tensor:
    """float32 ``[B, frames, mel]`` on the host; only the first calls of a voice have any."""
    prompt = np.zeros(size, np.float32)
    for row, span in enumerate(spans):
        frames = flow.prompt_frames(span, size[1])
        prompt[row, : len(frames)] = frames
    return torch.from_numpy(prompt)


def batch_tails(pool: PagePool, rows: int, tails: Sequence[FlowTails] = ()) -> FlowTails:
    """FlowTails of the first rows, and zeros for the others, with rows on axis 1."""
    empty = [pool.empty_tails()] * (rows - len(tails))
    return FlowTails(
        *(torch.stack(part, dim=1) for part in zip(*(row.parts for row in (*tails, *empty)), strict=True))
    )


@dataclass(frozen=True)
class Started:
    """What all steps of the solver share.

    Attributes:
        conditions, mask: for both guidance rows.
        table, page: of the first step in the estimator's flattened pages; add a step's number for its own.
        frame: of each new frame in its page.
        ends: new frames of each row; None where all are as long as the call.
        starts: frames of each row's utterance before the new ones.
    """

    conditions: Conditions
    mask: Tensor | None
    table: Tensor
    page: Tensor
    frame: Tensor
    ends: Tensor | None
    starts: Tensor


class Continued(NamedTuple):
    """
    Attributes:
        mel: float32 ``[B, frames, mel]``.
        tails: after the call, rows on axis 1.
    """

    mel: Tensor
    tails: FlowTails


class PagedSolver(Protocol):
    """Takes all of the solver's steps at once, over pasts in pages."""

    def solve(self, mel: Tensor, guided: Conditions, places: Places) -> None:
        """Take ``mel``, float32 ``[B, T, mel]``, from noise to the solution."""

    def on(self, multiprocessors: int) -> PagedSolver:
        """The same, with the same weights, for a part of the GPU that has so many multiprocessors."""


class PagedCall:
    """The call's two parts, :meth:`start` and then every :meth:`step`, on memory that stays in place.

    Nothing in them depends on values that only the host knows, so they can be captured as CUDA graphs, and
    replayed after the inputs have been overwritten.

    Args:
        new_tails: where the tails go; by default into memory of the call's own.
        mel: where the solver works; by default memory of the call's own.

    Attributes:
        mel: float32 ``[B, frames, mel]`` what the solver has so far.
        new_tails: those of the steps that are done.
    """

    def __init__(
        self,
        flow: Flow,
        pool: PagePool,
        inputs: PagedInputs,
        new_tails: FlowTails | None = None,
        mel: Tensor | None = None,
    ) -> None:
        self._flow, self._pool, self._inputs = flow, pool, inputs
        shape, config = inputs.shape, flow.config
        frames = config.frames_per_token * shape.tokens
        size = (shape.rows, frames, config.mel_bins)
        self.mel = torch.zeros(size, device=flow.device) if mel is None else mel
        self.new_tails = new_tails or FlowTails(*(torch.zeros_like(part) for part in inputs.tails.parts))
        self._before = torch.zeros(size, device=flow.device)
        self._index = torch.zeros(1, dtype=torch.int64, device=flow.device)

    def run(self) -> Continued:
        """All of it, without CUDA graphs."""
        started = self.start()
        for _ in range(self._flow.solver.num_steps):
            self.step(started)
        return Continued(self.mel, self.new_tails)

    def start(self, masked: bool = True) -> Started:
        """Encode the tokens; ``mel`` becomes the solver's noise.

        Args:
            masked: make the mask that :meth:`step` needs, and a :class:`PagedSolver` does not.
        """
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
        self._before.zero_()
        guided = flow.solver.guided(flow.conditions(mu, inputs.speaker, inputs.prompt))
        places = self._places(pool.estimator)
        mask = flow.solver.mask(visible) if masked else None
        starts = (inputs.rows.starts * flow.config.frames_per_token).repeat(pool.estimator.rows)
        return Started(guided, mask, *places, self._ends(pool.estimator), starts)

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
            starts=started.starts,
        )
        self.mel.copy_(solver.step(self.mel, started.conditions, started.mask, past, index, self._before))
        self.new_tails.estimator.index_copy_(2, index, new.unflatten(0, (geometry.rows, -1)).unsqueeze(2))
        index.add_(1).remainder_(solver.num_steps)  # a capture runs it more often than there are steps

    def solver_places(self, started: Started) -> Places:
        """Where a :class:`PagedSolver` finds the past and leaves the new frames."""
        inputs = self._inputs
        return Places(
            pages=self._pool.estimator_pages.flatten(0, 2),
            table=started.table,
            page=started.page,
            frame=started.frame,
            before=inputs.shape.before,
            unused=inputs.rows.missing.contiguous(),
            lengths=inputs.rows.counts * self._flow.config.frames_per_token,
            tails=inputs.tails.estimator.flatten(0, 1),
            new_tails=self.new_tails.estimator.flatten(0, 1),
        )

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
