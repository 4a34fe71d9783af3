"""Calls of the flow at fixed sizes, recorded once and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cosyvoice_runtime.cuda_graphs import Recorder, next_size, row_sizes
from cosyvoice_runtime.flow.flow import Flow, Span
from cosyvoice_runtime.flow.paged_call import Continued, PagedCall
from cosyvoice_runtime.flow.paged_inputs import BatchShape, PagedInputs
from cosyvoice_runtime.flow.pages import PagePool, Tails

MOST_ROWS = 16
"""More utterances are computed in several calls: a GPU gains little from more, and recordings take memory."""


@dataclass(frozen=True)
class CallSizes:
    """The sizes that are recorded, every combination of them, ascending.

    Attributes:
        rows: utterances.
        chunks: new ones of a row.
        before: finished ones that a row looks back on, prompt included.
    """

    rows: Sequence[int]
    chunks: Sequence[int] = (1, 2, 4)
    before: Sequence[int] = (2, 4, 8, 16, 32)

    @classmethod
    def up_to(cls, max_rows: int) -> CallSizes:
        """For batches of so many utterances."""
        return cls(row_sizes(min(max_rows, MOST_ROWS)))

    def shapes(self, chunk_tokens: int) -> list[BatchShape]:
        """Largest first."""
        return [
            BatchShape(rows, chunk_tokens * chunks, before)
            for rows in reversed(self.rows)
            for before in reversed(self.before)
            for chunks in reversed(self.chunks)
        ]

    def fitting(self, shape: BatchShape, chunk_tokens: int) -> BatchShape | None:
        """The smallest that holds a call; None if it is too large for all."""
        chunks = -(-shape.tokens // chunk_tokens)
        if shape.rows > self.rows[-1] or chunks > self.chunks[-1] or shape.before > self.before[-1]:
            return None
        tokens = chunk_tokens * next_size(self.chunks, chunks)
        return BatchShape(next_size(self.rows, shape.rows), tokens, next_size(self.before, shape.before))


class RecordedCall:
    """A :class:`PagedCall` of one shape: its start, and one step that is replayed for all."""

    def __init__(self, flow: Flow, pool: PagePool, shape: BatchShape, record: Recorder) -> None:
        self.shape = shape
        self._inputs = PagedInputs.of(flow, pool, shape)
        self._call = PagedCall(flow, pool, self._inputs)
        self._start = record(self._call.start)
        self._step = record(lambda: self._call.step(self._start.result))
        self._num_steps = flow.solver.num_steps

    def run(self, inputs: PagedInputs) -> Continued:
        """As :meth:`PagedCall.run` for inputs of this shape."""
        self._inputs.copy_(inputs)
        self._start.replay()
        for _ in range(self._num_steps):
            self._step.replay()
        tails = Tails(*(part.clone() for part in self._call.new_tails.parts))
        return Continued(self._call.mel.clone(), tails)


class RecordedCalls:
    """One recording for every shape of the sizes, all made at the start."""

    @torch.inference_mode()
    def __init__(self, flow: Flow, pool: PagePool, sizes: CallSizes, record: Recorder) -> None:
        self._chunk = flow.config.encoder.chunk_tokens
        self._sizes = sizes
        # Largest first: the smaller ones then find their memory in the pool.
        self._calls = {shape: RecordedCall(flow, pool, shape, record) for shape in sizes.shapes(self._chunk)}

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def max_rows(self) -> int:
        return self._sizes.rows[-1]

    def holds(self, span: Span) -> bool:
        """Whether there is a recording for a call with this stretch."""
        return self.fitting(BatchShape.of([span], self._chunk)) is not None

    def fitting(self, shape: BatchShape) -> RecordedCall | None:
        """The recording for a call; None for one larger than all."""
        recorded = self._sizes.fitting(shape, self._chunk)
        return None if recorded is None else self._calls[recorded]
