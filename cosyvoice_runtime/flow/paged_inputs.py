"""What one call of the flow needs to continue utterances at different positions, in a few tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.flow.flow import Flow, Span
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
    def of(cls, spans: Sequence[Span], chunk_tokens: int) -> BatchShape:
        """The smallest that holds these stretches."""
        counts = [span.count for span in spans]
        before = [span.start // chunk_tokens for span in spans]
        uneven = min(counts) < max(counts) or min(before) < max(before)
        return cls(len(spans), max(counts), max(before), masked=uneven or max(counts) > chunk_tokens)


@dataclass(frozen=True, eq=False)
class PagedInputs:
    """What the rows of a call bring with them.

    A row without an utterance computes as the others do, on zeros, and stores into the waste page.

    Attributes:
        numbers: int64 ``[B, N]``; for each row: tokens given, tokens to turn into mel, tokens before, chunks
            of ``before`` that it does not have, its page table and its tokens.
        speaker: float32 ``[B, D]``.
        prompt: float32 ``[B, frames, mel]`` the prompt's mel, zeros after it.
        tails: before the call, rows on axis 1.
    """

    shape: BatchShape
    num_pages: int
    numbers: Tensor
    speaker: Tensor
    prompt: Tensor
    tails: Tails

    @classmethod
    def of(
        cls,
        flow: Flow,
        pool: PagePool,
        shape: BatchShape,
        spans: Sequence[Span] = (),
        pages: Sequence[Sequence[int]] = (),
        tails: Sequence[Tails] = (),
    ) -> PagedInputs:
        """
        Args:
            spans: of the first rows; the others are without an utterance.
            pages: of each utterance, those of its earlier chunks and those reserved for this span.
            tails: of each utterance, before this span.
        """
        config, chunk = flow.config, flow.config.encoder.chunk_tokens
        num_pages = shape.before + -(-shape.tokens // chunk)
        given = shape.tokens + config.lookahead_tokens
        idle = [given, shape.tokens, 0, shape.before]
        idle += [ZERO_PAGE] * shape.before + [WASTE_PAGE] * (num_pages - shape.before) + [0] * given
        numbers = torch.tensor(idle).repeat(shape.rows, 1)
        speaker = torch.zeros(shape.rows, config.speaker_dim)
        prompt = torch.zeros(shape.rows, config.frames_per_token * shape.tokens, config.mel_bins)
        for row, (span, held) in enumerate(zip(spans, pages, strict=True)):
            unused = shape.before - span.start // chunk
            heads = torch.tensor([len(span.tokens), span.count, span.start, unused])
            table = torch.full((num_pages,), ZERO_PAGE)
            table[unused : unused + len(held)] = torch.tensor(held)
            numbers[row] = torch.cat([heads, table, F.pad(span.tokens, (0, given - len(span.tokens)))])
            speaker[row] = span.prompt.speaker
            frames = flow.prompt_frames(span, prompt.shape[1])
            prompt[row, : len(frames)] = frames
        return cls(
            shape=shape,
            num_pages=num_pages,
            numbers=moved(numbers, flow.device),
            speaker=moved(speaker, flow.device),
            prompt=moved(prompt, flow.device),
            tails=_batch_tails(pool, shape.rows, tails),
        )

    def copy_(self, other: PagedInputs) -> None:
        """Take over another call's values; its shape must be the same."""
        mine = (self.numbers, self.speaker, self.prompt, *self.tails.parts)
        for old, new in zip(
            mine, (other.numbers, other.speaker, other.prompt, *other.tails.parts), strict=True
        ):
            old.copy_(new)

    @property
    def given(self) -> Tensor:
        return self.numbers[:, 0]

    @property
    def counts(self) -> Tensor:
        return self.numbers[:, 1]

    @property
    def starts(self) -> Tensor:
        return self.numbers[:, 2]

    @property
    def unused(self) -> Tensor:
        return self.numbers[:, 3]

    @property
    def table(self) -> Tensor:
        """int64 ``[B, num_pages]``: aligned so that the new chunks of all rows start at the same page."""
        return self.numbers[:, 4 : 4 + self.num_pages]

    @property
    def tokens(self) -> Tensor:
        return self.numbers[:, 4 + self.num_pages :]


def _batch_tails(pool: PagePool, rows: int, tails: Sequence[Tails]) -> Tails:
    empty = [pool.empty_tails()] * (rows - len(tails))
    return Tails(
        *(torch.stack(part, dim=1) for part in zip(*(row.parts for row in (*tails, *empty)), strict=True))
    )
