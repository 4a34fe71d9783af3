"""Calls of the flow at fixed sizes, captured once and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from cosyvoice_runtime.flow.torch.call_inputs import BatchShape, PagedInputs
from cosyvoice_runtime.flow.torch.call_pages import Places
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.paged_call import PagedCall, PagedSolver, SolverTails
from cosyvoice_runtime.flow.torch.pages import PagePool
from cosyvoice_runtime.flow.torch.solver import Conditions
from cosyvoice_runtime.flow.voice_flow import TokenSpan
from cosyvoice_runtime.gpu.buckets import batch_buckets, bucket_for, finer_buckets
from cosyvoice_runtime.gpu.cuda_graphs import GraphCapture

MOST_ROWS = 32
"""More utterances are computed in several calls: a GPU gains little from more, and graphs take memory."""


MOST_PADDING = 8
"""Blocks of padding that a call may have, all rows together: more cost as much as another call."""
FEW_PASTS = (4, 16, 32, 64)
"""Finished blocks that calls look back on, where only what comes before the solver pays for more."""
BLOCKS, PASTS = (1, 2, 4), (2, 4, 8, 16, 32, 64)
"""New blocks of a row, and finished ones that calls look back on, where a call pays for more of both."""
MOST_PAGES = PASTS[-1] + BLOCKS[-1]
"""Blocks that a row of a captured call has."""


@dataclass(frozen=True)
class CallBuckets:
    """The sizes that are captured, every combination of them, each ascending.

    A block is a second: finished blocks cover a prompt of 30 s and 30 s of speech, and more.

    Attributes:
        rows: utterances.
        blocks: new ones of a row; a row with more is computed in several calls.
        before: finished ones that a row looks back on, prompt included.
    """

    rows: Sequence[int]
    blocks: Sequence[int] = BLOCKS
    before: Sequence[int] = PASTS

    @classmethod
    def up_to(cls, max_rows: int, any_past: bool = False, starts_too: bool = False) -> CallBuckets:
        """For batches of at most ``max_rows`` utterances.

        Args:
            any_past: the steps take as long whatever bucket of ``before`` the call is in, so few will do, and
                more of ``rows`` are there instead.
            starts_too: so does what comes before such steps (:attr:`Flow.encodes_any_past`), and one will do.
        """
        most = min(max_rows, MOST_ROWS)
        if not any_past:
            return cls(batch_buckets(most))
        return cls(finer_buckets(most), before=FEW_PASTS[-1:] if starts_too else FEW_PASTS)

    def shapes(self, chunk_tokens: int) -> list[BatchShape]:
        """All shapes, the largest first."""
        return [
            BatchShape(rows, chunk_tokens * blocks, before)
            for rows in reversed(self.rows)
            for before in reversed(self.before)
            for blocks in reversed(self.blocks)
        ]

    def blocks_of(self, left: Sequence[int]) -> int:
        """New blocks of each row of the next call, where rows have so many left.

        Rows with fewer are padded, and those with more go on in the next call: one long row among many short
        ones must not make them all as long.
        """
        longest = max(left, default=0)
        enough = next((blocks for blocks in self.blocks if blocks >= longest), self.blocks[-1])
        return max(
            blocks
            for blocks in self.blocks
            if blocks == self.blocks[0] or (blocks <= enough and _padding(left, blocks) <= MOST_PADDING)
        )

    def fitting(self, shape: BatchShape, chunk_tokens: int) -> BatchShape | None:
        """The smallest that holds a call; None if it is too large for all."""
        blocks = -(-shape.tokens // chunk_tokens)
        if shape.rows > self.rows[-1] or blocks > self.blocks[-1] or shape.before > self.before[-1]:
            return None
        tokens = chunk_tokens * bucket_for(self.blocks, blocks)
        return BatchShape(bucket_for(self.rows, shape.rows), tokens, bucket_for(self.before, shape.before))


def _padding(left: Sequence[int], blocks: int) -> int:
    return sum(max(blocks - each, 0) for each in left)


WARM_UP_STEPS = 2
"""The steps of the solver that launch all its kernels: arguments of the second are aligned otherwise than the
first's, and a kernel may be compiled for each."""


class FusedSteps:
    """All steps of the solver in one CUDA graph, for calls of any past.

    Fused kernels skip the pages that a row does not have, so one graph serves every :class:`GraphedCall` of
    its rows and tokens; each such call leaves here what its start has made.

    Args:
        shape: the size, with the longest past.
        tails: memory that all these calls use while they run.
    """

    def __init__(
        self,
        flow: Flow,
        pool: PagePool,
        shape: BatchShape,
        tails: SolverTails,
        capture: GraphCapture,
        solver: PagedSolver,
    ) -> None:
        idle = PagedCall(flow, pool, PagedInputs(flow, shape), tails=tails)
        started = idle.start(masked=False)
        self.mel = idle.mel
        self._conditions, self._places = started.conditions, idle.solver_places(started)

        def solve(steps: int | None = None) -> None:
            solver.solve(self.mel, self._conditions, self._places, steps)
            self._places.keep_tails(pool.estimator_tails)

        self._graph = capture(solve, partial(solve, WARM_UP_STEPS))

    def take(self, conditions: Conditions, places: Places) -> None:
        """Copy what a call's start has made; can be captured."""
        mine = self._places
        missing = mine.before - places.before
        for old, new in (
            (self._conditions.mu, conditions.mu),
            (self._conditions.speaker, conditions.speaker),
            (self._conditions.prompt, conditions.prompt),
            (mine.table[:, missing:], places.table),
            (mine.page, places.page),
            (mine.unused, places.unused + missing),
            (mine.lengths, places.lengths),
            (mine.tails_to, places.tails_to),
        ):
            old.copy_(new)

    def replay(self) -> None:
        """Take ``mel`` from noise to the solution."""
        self._graph.replay()


class GraphedCall:
    """A :class:`PagedCall` of one shape: its start, and then the steps.

    Plain steps are equal, so one is captured and replayed for all.

    Args:
        tails: memory that the call may use while it runs.
        fused: of this size, takes the place of the plain steps.
    """

    def __init__(
        self,
        flow: Flow,
        pool: PagePool,
        shape: BatchShape,
        tails: SolverTails,
        capture: GraphCapture,
        fused: FusedSteps | None = None,
    ) -> None:
        self._inputs = PagedInputs(flow, shape, again=True)
        if fused is None:
            self._call = PagedCall(flow, pool, self._inputs)
            start = capture(self._call.start)
            step = capture(lambda: self._call.step(start.result))
            self._replays = [start.replay, *[step.replay] * flow.solver.num_steps]
        else:
            self._call = PagedCall(flow, pool, self._inputs, fused.mel, tails)
            self._replays = [capture(lambda: self._start(fused)).replay, fused.replay]

    def run(self, spans: Sequence[TokenSpan], pages: Sequence[Sequence[int]]) -> Tensor:
        """Compute rows that fit, each with its pages as `PagedInputs` wants them."""
        self._inputs.take(spans, pages)
        for replay in self._replays:
            replay()
        return self._call.mel.clone()

    def _start(self, fused: FusedSteps) -> None:
        started = self._call.start(masked=False)
        fused.take(started.conditions, self._call.solver_places(started))


class GraphedCalls:
    """A captured call for every shape of the buckets, all made at the start.

    One runs at a time, so calls of as many rows share the memory of fused steps' tails.

    Args:
        fused: takes the solver's steps; None leaves them to the plain modules.
    """

    @torch.inference_mode()
    def __init__(
        self,
        flow: Flow,
        pool: PagePool,
        buckets: CallBuckets,
        capture: GraphCapture,
        fused: PagedSolver | None = None,
    ) -> None:
        self._chunk, self._lookahead = flow.config.encoder.chunk_tokens, flow.lookahead_tokens
        self._buckets = buckets
        tails = {rows: SolverTails.of(pool, rows) for rows in buckets.rows}
        # Largest first: the smaller ones then find their memory in the pool.
        self._steps = {
            (shape.rows, shape.tokens): FusedSteps(flow, pool, shape, tails[shape.rows], capture, fused)
            for shape in buckets.shapes(self._chunk)
            if fused is not None and shape.before == buckets.before[-1]
        }
        self._calls = {
            shape: GraphedCall(
                flow, pool, shape, tails[shape.rows], capture, self._steps.get((shape.rows, shape.tokens))
            )
            for shape in buckets.shapes(self._chunk)
        }

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def max_rows(self) -> int:
        return self._buckets.rows[-1]

    def fits(self, span: TokenSpan) -> bool:
        """Whether there is a captured call for this stretch."""
        return self.fitting(BatchShape.of([span], self._chunk)) is not None

    def fitting(self, shape: BatchShape) -> GraphedCall | None:
        """The captured call for a shape; None for one larger than all."""
        bucket = self._buckets.fitting(shape, self._chunk)
        return None if bucket is None else self._calls[bucket]

    def first_parts(self, spans: Sequence[TokenSpan]) -> list[TokenSpan]:
        """As much of each span as the next call takes, and all of one that no call looks back to.

        Stretches that follow each other give what one call would: attention is block-causal.
        """
        captured = [self._looks_back(span) for span in spans]
        left = [-(-span.count // self._chunk) for span, fits in zip(spans, captured, strict=True) if fits]
        count = self._chunk * self._buckets.blocks_of(left)
        return [
            span.first(count, self._lookahead) if fits else span
            for span, fits in zip(spans, captured, strict=True)
        ]

    def _looks_back(self, span: TokenSpan) -> bool:
        return span.start // self._chunk <= self._buckets.before[-1]
