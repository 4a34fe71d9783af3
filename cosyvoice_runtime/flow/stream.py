"""The flow of an utterance whose tokens arrive over time: its state takes them and gives the next mel frames.

Only whole blocks are computed, counted from the start of the prompt, and each once: what later
blocks need of earlier ones is read from pages. The frames equal those of
:meth:`Flow.generate(streaming=True) <cosyvoice_runtime.flow.flow.Flow.generate>` to rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cosyvoice_runtime.cuda_graphs import EagerCalls, GraphCapture, split_graph_rows
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.flow.flow import Flow, FlowPrompt, TokenSpan
from cosyvoice_runtime.flow.graphed_calls import CallBuckets, GraphedCalls
from cosyvoice_runtime.flow.paged_call import (
    BatchShape,
    Continued,
    PagedCall,
    PagedInputs,
    PagedSolver,
    batch_tails,
)
from cosyvoice_runtime.flow.pages import PagePool, Tails

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class FlowPrefix:
    """What the flow computes from a voice alone, held for every utterance that uses it."""

    prompt: FlowPrompt
    pages: list[int]
    tails: Tails
    tokens_done: int


@dataclass(frozen=True, eq=False)
class FlowMark:
    """Where an utterance was: tokens turned into mel, pages held, tails. Tails are never overwritten."""

    tokens_done: int
    num_pages: int
    tails: Tails


class FlowState:
    """One utterance: its tokens so far, and how many of them are mel already.

    Made by :meth:`FlowStream.open`.
    """

    def __init__(
        self, flow: Flow, prompt: FlowPrompt, pages: list[int], tails: Tails, tokens_done: int
    ) -> None:
        self.prompt = prompt
        self.tokens = prompt.tokens
        self.tokens_done = tokens_done
        self.last = False
        self.pages: list[int] | None = pages
        """Pages held; None once the pool ran out and this utterance recomputes its earlier blocks."""
        self.tails = tails
        self._flow = flow

    def push(self, tokens: Sequence[int], last: bool = False) -> None:
        """Append speech tokens; ``last`` says that no more will come.

        Raises:
            InvalidInput: a token is out of range or the utterance would exceed 300 s. The state is
                unchanged.
        """
        self.tokens = torch.cat([self.tokens, self.check(tokens)])
        self.last = last

    def check(self, tokens: Sequence[int]) -> Tensor:
        """These tokens as int64, if :meth:`push` would take them; otherwise its error."""
        return self._flow.check_tokens(tokens, len(self.tokens))

    def mark(self) -> FlowMark:
        """Where the utterance is, for :meth:`FlowStream.rewind`."""
        return FlowMark(self.tokens_done, len(self.pages or ()), self.tails)

    def next_span(self) -> TokenSpan | None:
        """The tokens that can be turned into mel now: whole blocks, or at the end all that is left."""
        left = len(self.tokens) - self.tokens_done
        if self.last:
            return self._span(left, left) if left else None
        lookahead = self._flow.lookahead_tokens
        block = self._flow.config.encoder.chunk_tokens
        count = max(left - lookahead, 0) // block * block
        return self._span(count, count + lookahead) if count else None

    def whole(self, span: TokenSpan) -> TokenSpan:
        """The same stretch, computed from the start of the utterance."""
        end = span.start + len(span.tokens)
        return TokenSpan(self.prompt, 0, span.start + span.count, self.tokens[:end])

    def _span(self, count: int, length: int) -> TokenSpan:
        start = self.tokens_done
        return TokenSpan(self.prompt, start, count, self.tokens[start : start + length])


class FlowWork(NamedTuple):
    """What the utterance in a row of a batch has to compute next."""

    row: int
    state: FlowState
    span: TokenSpan


Call = tuple[Sequence[FlowWork], Callable[[Sequence[FlowWork]], list[Tensor]]]
"""Work that is computed side by side, and what computes it: new frames ``[T, mel]`` of each."""


class FlowStream:
    """Runs blocks of many utterances in one batch.

    Args:
        num_pages: blocks (1 s each) of finished work held for all utterances and voices together;
            the memory is ``num_pages * page_bytes``. An utterance that finds no free page
            recomputes its blocks from the start each time: the same audio, more work.
        eager: counts calls without a captured graph; by default one of its own.

    Attributes:
        recomputing: utterances so far that ran out of pages.
        calls: of the network so far.
        eager: calls so far that no captured graph held.
        fused: whether captured calls take the solver's steps in fused kernels.
    """

    def __init__(self, flow: Flow, num_pages: int, eager: EagerCalls | None = None) -> None:
        chunk_frames = flow.config.frames_per_token * flow.config.encoder.chunk_tokens
        if chunk_frames != flow.config.blockwise.chunk_frames:
            raise CheckpointError(
                f"the encoder's blocks have {chunk_frames} frames, the estimator's "
                f"{flow.config.blockwise.chunk_frames}: this checkpoint can't be streamed"
            )
        self.flow = flow
        self.pool = PagePool(flow, num_pages)
        self.recomputing = self.calls = 0
        self.eager = eager or EagerCalls()
        self.fused = False
        self._graphs: GraphedCalls | None = None

    def capture(self, buckets: CallBuckets, capture: GraphCapture, fused: PagedSolver | None = None) -> int:
        """Replay calls of these sizes from now on. Longer new speech is computed in several calls; a call
        that looks back further than all buckets runs eagerly, in plain steps.

        Args:
            fused: takes the place of the solver's steps in what is captured.

        Returns:
            the number of captured calls; none without pages, where every call is computed from the start.
        """
        if not self.pool.num_pages:
            return 0
        self.fused = fused is not None
        self._graphs = GraphedCalls(self.flow, self.pool, buckets, capture, fused)
        return len(self._graphs)

    def prefix(self, prompt: FlowPrompt) -> FlowPrefix:
        """Compute the blocks that hold only prompt (their look-ahead included), once per voice.

        With too few free pages the prefix is empty and every utterance computes these blocks itself.
        """
        state = self.open(prompt)
        try:
            self.advance([state])
        except BaseException:
            self.close(state)
            raise
        if state.pages is None:
            return FlowPrefix(prompt, [], self.pool.empty_tails(), 0)
        return FlowPrefix(prompt, state.pages, state.tails, state.tokens_done)

    def open(self, voice: FlowPrompt | FlowPrefix) -> FlowState:
        """Start an utterance. Pair with :meth:`close`."""
        if isinstance(voice, FlowPrefix):
            pages = self.pool.share(voice.pages)
            return FlowState(self.flow, voice.prompt, pages, voice.tails, voice.tokens_done)
        return FlowState(self.flow, self.flow.check_prompt(voice), [], self.pool.empty_tails(), 0)

    def close(self, held: FlowState | FlowPrefix) -> None:
        """Give back the pages of an utterance or of a voice; harmless when repeated."""
        if held.pages:
            self.pool.release(held.pages)
            held.pages.clear()

    def rewind(self, state: FlowState, mark: FlowMark) -> None:
        """Be again where the utterance was, and free the pages it took since; it may have lost all pages."""
        state.tokens_done, state.tails = mark.tokens_done, mark.tails
        if state.pages is not None:
            self.pool.release(state.pages[mark.num_pages :])
            del state.pages[mark.num_pages :]

    @torch.inference_mode()
    def advance(self, states: Sequence[FlowState]) -> list[Tensor]:
        """Turn all tokens that are ready into mel, utterances side by side.

        Returns:
            float32 ``[mel, T]`` per state: the frames after those returned before, without the
            prompt's; T is 0 where no block is complete.
        """
        mels: list[list[Tensor]] = [[] for _ in states]
        while work := self._next_work(states):
            for batch, compute in self._calls(work):
                self.calls += 1
                for (row, state, span), frames in zip(batch, compute(batch), strict=True):
                    mels[row].append(self._emit(state, span, frames))
        nothing = torch.zeros(self.flow.config.mel_bins, 0, device=self.flow.device)
        return [torch.cat(mel, dim=1) if len(mel) > 1 else next(iter(mel), nothing) for mel in mels]

    def _next_work(self, states: Sequence[FlowState]) -> list[FlowWork]:
        """What can be computed now: of states with pages, at most what a captured graph holds."""
        spans = [(row, state, state.next_span()) for row, state in enumerate(states)]
        work = [FlowWork(row, state, span) for row, state, span in spans if span is not None]
        if self._graphs is None:
            return work
        paged = [item for item in work if item.state.pages is not None]
        parts = self._graphs.first_parts([item.span for item in paged])
        whole = [item for item in work if item.state.pages is None]
        return [*(item._replace(span=part) for item, part in zip(paged, parts, strict=True)), *whole]

    def _calls(self, work: Sequence[FlowWork]) -> Iterator[Call]:
        """The calls that the work takes, once its pages are reserved."""
        paged = [item for item in work if self._reserve(item.state, item.span)]
        recomputed = [self._whole(item) for item in work if item.state.pages is None]
        for batch in self._batches(paged):
            yield batch, self._continue
        if recomputed:
            yield recomputed, self._recompute

    def _whole(self, item: FlowWork) -> FlowWork:
        """All that can be computed: recomputing part by part would begin anew for each."""
        return item._replace(span=item.state.next_span() or item.span)

    def _batches(self, work: Sequence[FlowWork]) -> Iterator[Sequence[FlowWork]]:
        graphs = self._graphs
        if graphs is None:
            return iter([work] if work else [])
        return split_graph_rows(work, lambda item: graphs.fits(item.span), graphs.max_rows)

    def _reserve(self, state: FlowState, span: TokenSpan) -> bool:
        """Make sure the state has pages for the span."""
        if state.pages is None:
            return False
        whole, rest = divmod(span.count, self.flow.config.encoder.chunk_tokens)
        pages = self.pool.acquire(whole + bool(rest))
        if pages is None:
            self.close(state)
            state.pages = None
            self.recomputing += 1
            logger.warning("no free flow page of %d: an utterance recomputes", self.pool.num_pages)
            return False
        if rest:
            self.pool.clear(pages[-1])
        state.pages.extend(pages)
        return True

    def _emit(self, state: FlowState, span: TokenSpan, frames: Tensor) -> Tensor:
        """Advance the state past the span and cut padding and prompt off its frames ``[T, mel]``."""
        rate = self.flow.config.frames_per_token
        state.tokens_done = span.start + span.count
        hidden = max(len(state.prompt.tokens) - span.start, 0)
        return frames[rate * hidden : rate * span.count].T

    def _recompute(self, work: Sequence[FlowWork]) -> list[Tensor]:
        self._count_eager("utterances found no free page")
        whole = [state.whole(span) for _, state, span in work]
        mel = self.flow.solve(whole, self.flow.attention_of_whole(whole, streaming=True))
        rate = self.flow.config.frames_per_token
        return [frames[rate * span.start :] for frames, (_, _, span) in zip(mel, work, strict=True)]

    def _continue(self, work: Sequence[FlowWork]) -> list[Tensor]:
        mel, tails = self._run(work)
        for item, new_tails in zip(work, tails.rows(), strict=False):  # captured calls may have more rows
            item.state.tails = new_tails
        return list(mel[: len(work)])

    def _run(self, work: Sequence[FlowWork]) -> Continued:
        spans = [item.span for item in work]
        shape = BatchShape.of(spans, self.flow.config.encoder.chunk_tokens)
        call = None if self._graphs is None else self._graphs.fitting(shape)
        if call is None:
            self._count_eager(f"utterances look back on {shape.before} blocks")
            return PagedCall(self.flow, self.pool, self._inputs(shape, work)).run()
        return call.run(self._inputs(call.shape, work))

    def _inputs(self, shape: BatchShape, work: Sequence[FlowWork]) -> PagedInputs:
        tails = batch_tails(self.pool, shape.rows, [item.state.tails for item in work])
        pages = [item.state.pages or [] for item in work]
        return PagedInputs.of(self.flow, shape, tails, [item.span for item in work], pages)

    def _count_eager(self, reason: str) -> None:
        if self._graphs is not None:
            self.eager.add(reason)
