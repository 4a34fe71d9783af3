"""Inputs of the rows of a paged call of the flow, packed for the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.flow.page_store import WASTE_PAGE, ZERO_PAGE
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.voice_flow import TokenSpan
from cosyvoice_runtime.gpu.transfer import Kind, Parcel


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
        """Number of pages in a row's table: those before and those of its new tokens."""
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


class PagedInputs:
    """Inputs of the rows of a call.

    Args:
        spans: of the first rows; the others are without an utterance.
        pages: of each utterance, those of its earlier blocks and those reserved for this span.
        again: others will be taken in, again and again.

    Attributes:
        num_pages: of a row's page table.
        packed: int64, :class:`RowIndices` in one tensor.
        speaker: float32 ``[B, D]``.
        prompt: float32 ``[B, frames, mel]`` the prompt's mel, zeros after it.
    """

    def __init__(
        self,
        flow: Flow,
        shape: BatchShape,
        spans: Sequence[TokenSpan] = (),
        pages: Sequence[Sequence[int]] = (),
        again: bool = False,
    ) -> None:
        config = flow.config
        self.shape, self._flow = shape, flow
        self.num_pages = shape.pages(config.encoder.chunk_tokens)
        frames, given = config.frames_per_token * shape.tokens, shape.tokens + config.lookahead_tokens
        kinds: list[Kind] = [
            ((shape.rows, 4 + self.num_pages + given), torch.int64),
            ((shape.rows, config.speaker_dim), torch.float32),
            ((shape.rows, frames, config.mel_bins), torch.float32),
        ]
        self._parcel = Parcel(flow.device, kinds, again)
        self.packed, self.speaker, self.prompt = self._parcel.tensors
        self._no_prompt = True  # its memory holds zeros
        self.take(spans, pages)

    def take(self, spans: Sequence[TokenSpan], pages: Sequence[Sequence[int]]) -> None:
        """Overwrite all with what the first rows bring."""
        packed, speaker, prompt = self._parcel.host()
        _pack_rows(packed, self.shape, self._flow.config.encoder.chunk_tokens, spans, pages)
        speaker[:] = 0
        if spans:
            speaker[: len(spans)] = [span.prompt.speaker for span in spans]
        no_prompt = all(span.start >= len(span.prompt.tokens) for span in spans)
        if no_prompt and self._no_prompt:
            self._parcel.send(2)
            return
        self._no_prompt = False
        prompt[:] = 0
        for row, span in enumerate(spans):  # only the first calls of a voice have any
            frames = self._flow.prompt_frames(span, prompt.shape[1])
            prompt[row, : len(frames)] = frames
        self._parcel.send(3)
        self._no_prompt = no_prompt

    @cached_property
    def rows(self) -> RowIndices:
        """Views of the packed tensor: they follow when it is overwritten."""
        return RowIndices.unpack(self.packed, self.num_pages)


def _pack_rows(
    packed: npt.NDArray[np.int64],
    shape: BatchShape,
    block: int,
    spans: Sequence[TokenSpan],
    pages: Sequence[Sequence[int]],
) -> None:
    """Write :class:`RowIndices`; rows without an utterance compute too, into the waste page."""
    width = shape.pages(block)
    table, tokens = packed[:, 4 : 4 + width], packed[:, 4 + width :]
    packed[:, :4] = tokens.shape[1], shape.tokens, 0, shape.before
    table[:, : shape.before], table[:, shape.before :], tokens[:] = ZERO_PAGE, WASTE_PAGE, 0
    for row, (span, held) in enumerate(zip(spans, pages, strict=True)):
        missing = shape.before - span.start // block
        packed[row, :4] = len(span.tokens), span.count, span.start, missing
        table[row] = ZERO_PAGE
        table[row, missing : missing + len(held)] = held
        tokens[row, : len(span.tokens)] = span.tokens
