"""What one call of the flow needs to continue utterances at different positions, in a few tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from cosyvoice_runtime.flow.flow import Flow, TokenSpan
from cosyvoice_runtime.flow.pages import WASTE_PAGE, ZERO_PAGE, PagePool, Tails
from cosyvoice_runtime.transfer import moved


@dataclass(frozen=True)
class BatchShape:
    """Sizes of a call.

    Attributes:
        rows: utterances.
        tokens: new tokens of a row.
        before: finished chunks that a row looks back on.
        masked: rows may have fewer tokens or chunks, or more tokens than one chunk; otherwise everything sees
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
        page_table: ``[B, P]``, aligned so that the new chunks of all rows start at the same page.
        tokens: ``[B, T + lookahead]``.
    """

    given: Tensor
    counts: Tensor
    starts: Tensor
    missing: Tensor
    page_table: Tensor
    tokens: Tensor

    @classmethod
    def of_idle_rows(cls, shape: BatchShape, pages: int, given: int) -> RowIndices:
        """Rows without an utterance: they compute as the others do, and store into the waste page."""
        table = torch.full((shape.rows, pages), WASTE_PAGE)
        table[:, : shape.before] = ZERO_PAGE
        every_row = torch.ones(shape.rows, dtype=torch.int64)
        return cls(
            given=every_row * given,
            counts=every_row * shape.tokens,
            starts=every_row * 0,
            missing=every_row * shape.before,
            page_table=table,
            tokens=torch.zeros(shape.rows, given, dtype=torch.int64),
        )

    def set_row(self, row: int, span: TokenSpan, pages: Sequence[int], missing: int) -> None:
        """Give a row the next stretch of an utterance that holds these pages."""
        self.given[row] = len(span.tokens)
        self.counts[row] = span.count
        self.starts[row] = span.start
        self.missing[row] = missing
        self.page_table[row] = ZERO_PAGE
        self.page_table[row, missing : missing + len(pages)] = torch.tensor(pages)
        self.tokens[row] = 0
        self.tokens[row, : len(span.tokens)] = span.tokens

    def pack(self) -> Tensor:
        """``[B, 4 + P + T + lookahead]``."""
        numbers = torch.stack([self.given, self.counts, self.starts, self.missing], dim=1)
        return torch.cat([numbers, self.page_table, self.tokens], dim=1)

    @classmethod
    def unpack(cls, packed: Tensor, pages: int) -> RowIndices:
        """Views of a packed tensor."""
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
    tails: Tails

    @classmethod
    def of(
        cls,
        flow: Flow,
        shape: BatchShape,
        tails: Tails,
        spans: Sequence[TokenSpan] = (),
        pages: Sequence[Sequence[int]] = (),
    ) -> PagedInputs:
        """
        Args:
            tails: of all rows, before the call.
            spans: of the first rows; the others are without an utterance.
            pages: of each utterance, those of its earlier chunks and those reserved for this span.
        """
        config, chunk = flow.config, flow.config.encoder.chunk_tokens
        num_pages = shape.pages(chunk)
        indices = RowIndices.of_idle_rows(shape, num_pages, shape.tokens + config.lookahead_tokens)
        speaker = torch.zeros(shape.rows, config.speaker_dim)
        prompt = torch.zeros(shape.rows, config.frames_per_token * shape.tokens, config.mel_bins)
        for row, (span, held) in enumerate(zip(spans, pages, strict=True)):
            indices.set_row(row, span, held, missing=shape.before - span.start // chunk)
            speaker[row] = span.prompt.speaker
            frames = flow.prompt_frames(span, prompt.shape[1])
            prompt[row, : len(frames)] = frames
        return cls(
            shape=shape,
            num_pages=num_pages,
            packed=moved(indices.pack(), flow.device),
            speaker=moved(speaker, flow.device),
            prompt=moved(prompt, flow.device),
            tails=tails,
        )

    @cached_property
    def rows(self) -> RowIndices:
        """Views of the packed tensor: they follow when it is overwritten."""
        return RowIndices.unpack(self.packed, self.num_pages)

    def copy_(self, other: PagedInputs) -> None:
        """Take over another call's values; its shape must be the same."""
        for old, new in zip(self._tensors, other._tensors, strict=True):
            old.copy_(new)

    @property
    def _tensors(self) -> tuple[Tensor, ...]:
        return self.packed, self.speaker, self.prompt, *self.tails.parts


def batch_tails(pool: PagePool, rows: int, tails: Sequence[Tails] = ()) -> Tails:
    """Tails of the first rows, and zeros for the others, with rows on axis 1."""
    empty = [pool.empty_tails()] * (rows - len(tails))
    return Tails(
        *(torch.stack(part, dim=1) for part in zip(*(row.parts for row in (*tails, *empty)), strict=True))
    )
