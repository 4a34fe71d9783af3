"""The flow, piece by piece: an utterance's state takes speech tokens and gives the next mel frames.

Only whole chunks are computed, counted from the start of the prompt, and each once: what later
chunks need of earlier ones is read from pages. The frames equal those of
:meth:`Flow.generate(streaming=True) <cosyvoice_runtime.flow.flow.Flow.generate>` to rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cosyvoice_runtime.cuda_graphs import Recorder, groups
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.flow.flow import Flow, FlowPrompt, Span
from cosyvoice_runtime.flow.paged_call import Continued, PagedCall
from cosyvoice_runtime.flow.paged_inputs import BatchShape, PagedInputs
from cosyvoice_runtime.flow.pages import PagePool, Tails
from cosyvoice_runtime.flow.recorded_calls import CallSizes, RecordedCalls

logger = logging.getLogger(__name__)

Work = tuple[int, Span]
"""Row of a batch, and what it has to compute."""


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
        """Pages held; None once the pool ran out and this utterance recomputes its earlier chunks."""
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

    def next_span(self) -> Span | None:
        """The tokens that can be turned into mel now: whole chunks, or at the end all that is left."""
        left = len(self.tokens) - self.tokens_done
        if self.last:
            return self._span(left, left) if left else None
        lookahead = self._flow.config.lookahead_tokens
        chunk = self._flow.config.encoder.chunk_tokens
        count = max(left - lookahead, 0) // chunk * chunk
        return self._span(count, count + lookahead) if count else None

    def whole(self, span: Span) -> Span:
        """The same stretch, computed from the start of the utterance."""
        end = span.start + len(span.tokens)
        return Span(self.prompt, 0, span.start + span.count, self.tokens[:end])

    def _span(self, count: int, length: int) -> Span:
        start = self.tokens_done
        return Span(self.prompt, start, count, self.tokens[start : start + length])


class FlowStream:
    """Runs chunks of many utterances in one batch.

    Args:
        num_pages: chunks (1 s each) of finished work held for all utterances and voices together;
            the memory is ``num_pages * page_bytes``. An utterance that finds no free page
            recomputes its chunks from the start each time: the same audio, more work.
    """

    def __init__(self, flow: Flow, num_pages: int) -> None:
        chunk_frames = flow.config.frames_per_token * flow.config.encoder.chunk_tokens
        if chunk_frames != flow.config.estimator.chunk_frames:
            raise CheckpointError(
                f"the encoder's chunks have {chunk_frames} frames, the estimator's "
                f"{flow.config.estimator.chunk_frames}: this checkpoint can't be streamed"
            )
        self.flow = flow
        self.pool = PagePool(flow, num_pages)
        self.recomputing = 0
        """Utterances so far that ran out of pages."""
        self._recorded: RecordedCalls | None = None

    def record(self, sizes: CallSizes, recorder: Recorder) -> int:
        """Replay calls of these sizes from now on; larger ones are computed as before.

        Returns:
            the number of recordings; none without pages, where every call is computed from the start.
        """
        if not self.pool.num_pages:
            return 0
        self._recorded = RecordedCalls(self.flow, self.pool, sizes, recorder)
        return len(self._recorded)

    def prefix(self, prompt: FlowPrompt) -> FlowPrefix:
        """Compute the chunks that hold only prompt (their look-ahead included), once per voice.

        With too few free pages the prefix is empty and every utterance computes these chunks itself.
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
            prompt's; T is 0 where no chunk is complete.
        """
        mels = [torch.zeros(self.flow.config.mel_bins, 0, device=self.flow.device) for _ in states]
        work = [(row, span) for row, state in enumerate(states) if (span := state.next_span()) is not None]
        paged = [(row, span) for row, span in work if self._reserve(states[row], span)]
        recomputed = [(row, span) for row, span in work if states[row].pages is None]
        calls = [(group, self._continue) for group in self._groups(paged)]
        for group, compute in [*calls, (recomputed, self._recompute)]:
            if group:
                spans = [span for _, span in group]
                group_states = [states[row] for row, _ in group]
                for (row, _), state, span, frames in zip(
                    group, group_states, spans, compute(group_states, spans), strict=True
                ):
                    mels[row] = self._emit(state, span, frames)
        return mels

    def _groups(self, work: list[Work]) -> Iterable[list[Work]]:
        """What goes into one call each."""
        recorded = self._recorded
        if recorded is None:
            return [work]
        return groups(work, lambda item: recorded.holds(item[1]), recorded.max_rows)

    def _reserve(self, state: FlowState, span: Span) -> bool:
        """Make sure the state has pages for the span."""
        if state.pages is None:
            return False
        chunks = -(-span.count // self.flow.config.encoder.chunk_tokens)
        pages = self.pool.acquire(chunks)
        if pages is None:
            self.close(state)
            state.pages = None
            self.recomputing += 1
            logger.warning("no free flow page of %d: an utterance recomputes", self.pool.num_pages)
            return False
        state.pages.extend(pages)
        return True

    def _emit(self, state: FlowState, span: Span, frames: Tensor) -> Tensor:
        """Advance the state past the span and cut padding and prompt off its frames ``[T, mel]``."""
        rate = self.flow.config.frames_per_token
        state.tokens_done = span.start + span.count
        hidden = max(len(state.prompt.tokens) - span.start, 0)
        return frames[rate * hidden : rate * span.count].T

    def _recompute(self, states: Sequence[FlowState], spans: Sequence[Span]) -> list[Tensor]:
        whole = [state.whole(span) for state, span in zip(states, spans, strict=True)]
        mel = self.flow.solve(whole, self.flow.attention_of_whole(whole, streaming=True))
        rate = self.flow.config.frames_per_token
        return [row[rate * span.start :] for row, span in zip(mel, spans, strict=True)]

    def _continue(self, states: Sequence[FlowState], spans: Sequence[Span]) -> list[Tensor]:
        mel, tails = self._run(states, spans)
        for state, new_tails in zip(states, tails.rows(), strict=False):  # recorded calls may have more rows
            state.tails = new_tails
        return list(mel[: len(states)])

    def _run(self, states: Sequence[FlowState], spans: Sequence[Span]) -> Continued:
        pages, tails = [state.pages or [] for state in states], [state.tails for state in states]
        shape = BatchShape.of(spans, self.flow.config.encoder.chunk_tokens)
        recorded = None if self._recorded is None else self._recorded.fitting(shape)
        if recorded is not None:
            return recorded.run(PagedInputs.of(self.flow, self.pool, recorded.shape, spans, pages, tails))
        inputs = PagedInputs.of(self.flow, self.pool, shape, spans, pages, tails)
        return PagedCall(self.flow, self.pool, inputs).run()
