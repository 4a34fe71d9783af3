"""The flow of utterances whose tokens arrive over time: each state takes them and gives the next mel frames.

Only whole blocks are computed, counted from the start of the prompt, and each once: what later
blocks need of earlier ones is read from pages. The frames equal those of the whole utterance, computed at
once, to rounding. What computes them is for the runtimes to say.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.flow.page_store import PageStore, Tails
from cosyvoice_runtime.flow.voice_flow import FlowInputs, FlowPrefix, FlowPrompt, Ids, TokenSpan, VoiceFlow

logger = logging.getLogger(__name__)

Mel = Any
"""``[mel, T]`` float32, an array of the runtime, which is cut and joined here and nothing else."""


@dataclass(frozen=True, eq=False)
class FlowMark:
    """Where an utterance was: tokens whose pages are there and whose mel is given, pages held, tails."""

    tokens_done: int
    tokens_given: int
    num_pages: int | None
    tails: Tails


class FlowState:
    """One utterance: its tokens so far, and how many of them are mel already.

    Made by :meth:`PagedFlow.open`.

    Args:
        prefix: of the voice, whose pages are shared.

    Attributes:
        tokens_done: that what comes next is computed after.
        tokens_given: whose mel has been given; more than are done while pages that were lost are made again.
        pages: that are held; None where they were lost.
        tails: after the tokens that are done.
    """

    def __init__(self, flow: FlowInputs, prompt: FlowPrompt, pages: list[int], prefix: FlowPrefix) -> None:
        self.prompt = prompt
        self.prefix = prefix
        self.tokens = prompt.tokens
        self.tokens_done = self.tokens_given = prefix.tokens_done
        self.last = False
        self.pages: list[int] | None = pages
        self.tails = prefix.tails
        self._flow = flow

    def push(self, tokens: Sequence[int], last: bool = False) -> None:
        """Append speech tokens; ``last`` says that no more will come.

        Raises:
            InvalidInput: a token is out of range or the utterance would exceed 300 s. The state is
                unchanged.
        """
        self.tokens = np.concatenate([self.tokens, self.check(tokens)])
        self.last = last

    def check(self, tokens: Sequence[int]) -> Ids:
        """These tokens as int64, if :meth:`push` would take them; otherwise its error."""
        return self._flow.check_tokens(tokens, len(self.tokens))

    def mark(self) -> FlowMark:
        """Where the utterance is, for :meth:`PagedFlow.rewind`."""
        held = None if self.pages is None else len(self.pages)
        return FlowMark(self.tokens_done, self.tokens_given, held, self.tails)

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
        """A span from the start of the utterance that ends where this one does."""
        end = span.start + len(span.tokens)
        return TokenSpan(self.prompt, 0, span.start + span.count, self.tokens[:end])

    def _span(self, count: int, length: int) -> TokenSpan:
        start = self.tokens_done
        return TokenSpan(self.prompt, start, count, self.tokens[start : start + length])


class FlowWork(NamedTuple):
    """The next work of the utterance in a row of a batch."""

    row: int
    state: FlowState
    span: TokenSpan


Compute = Callable[[Sequence[FlowWork]], Sequence[Mel]]
"""Function that computes several utterances together: new frames ``[T, mel]`` of each, padding included."""


class PagedFlow(VoiceFlow):
    """Runs blocks of many utterances in one batch.

    Args:
        flow: what the networks take.
        pool: blocks (1 s each) of finished work held for all utterances and voices together. An utterance
            that finds no free page loses those it has. Its next call computes its blocks again, and keeps
            them if there are pages for all by then: the same audio, more work.

    Raises:
        CheckpointError: the checkpoint can't be streamed.
    """

    def __init__(self, flow: FlowInputs, pool: PageStore) -> None:
        chunk_frames = flow.config.frames_per_token * flow.config.encoder.chunk_tokens
        if chunk_frames != flow.config.blockwise.chunk_frames:
            raise CheckpointError(
                f"the encoder's blocks have {chunk_frames} frames, the estimator's "
                f"{flow.config.blockwise.chunk_frames}: this checkpoint can't be streamed"
            )
        super().__init__(flow)
        self.pool = pool

    @property
    def num_pages(self) -> int:
        return self.pool.num_pages

    @property
    def free_pages(self) -> int:
        return self.pool.free_pages

    def when_short(self, makes_room: Callable[[int], bool]) -> None:
        self.pool.makes_room = makes_room

    def mels(self, states: Sequence[FlowState]) -> list[Mel]:
        """Turn all tokens that are ready into mel, utterances in one batch.

        Returns:
            float32 ``[mel, T]`` per state, perhaps cut from arrays that they share: the frames after those
            returned before, without the prompt's; T is 0 where no block is complete.
        """
        self._begin_again(states)
        mels: list[list[Mel]] = [[] for _ in states]
        while work := self._next_work(states):
            for batch, compute in self._calls(work):
                self.calls += 1
                for (row, state, span), frames in zip(batch, compute(batch), strict=True):
                    mels[row].append(self._emit(state, span, frames))
        return [mel[0] if len(mel) == 1 else self.joined(mel) for mel in mels]

    def advance(self, states: Sequence[FlowState]) -> list[Mel]:
        """Compute :meth:`mels` in arrays of their own."""
        return self.mels(states)

    def cut(self, frames: Mel, start: int, stop: int) -> Mel:
        """Some of the frames ``[T, mel]`` that a call gives, as ``[mel, stop - start]``."""
        return frames[start:stop].T

    @abstractmethod
    def joined(self, mels: Sequence[Mel]) -> Mel:
        """Frames one after the other; of none, ``[mel, 0]``."""

    @abstractmethod
    def continued(self, work: Sequence[FlowWork]) -> Sequence[Mel]:
        """Compute spans after the pages and tails of their states, which get new tails."""

    @abstractmethod
    def recomputed(self, spans: Sequence[TokenSpan]) -> Sequence[Mel]:
        """Compute spans that begin where their utterances do, keeping nothing."""

    def settle(self) -> None:
        """Wait for what has been begun, before pages that it may still use are given away."""

    def begun(self) -> Callable[[], None]:
        """A function that waits for all that has been begun until now."""
        return _done

    def first_parts(self, spans: Sequence[TokenSpan]) -> Sequence[TokenSpan]:
        """As much of each span as the next call takes."""
        return spans

    def batches(self, work: Sequence[FlowWork]) -> Iterator[Sequence[FlowWork]]:
        """The work of each call."""
        return iter([work] if work else [])

    def prefix(self, prompt: FlowPrompt) -> FlowPrefix:
        """Compute the blocks that hold only prompt (their look-ahead included), once per voice.

        With too few free pages the prefix is empty and every utterance computes these blocks itself.
        """
        state = self.open(prompt)
        try:
            self.mels([state])
        except BaseException:
            self.settle()
            self.close(state)
            raise
        if state.pages is None:
            return FlowPrefix(prompt, [], self.pool.empty_tails(), 0)
        return FlowPrefix(prompt, state.pages, state.tails, state.tokens_done)

    def open(self, voice: FlowPrompt | FlowPrefix) -> FlowState:
        """Start an utterance. Pair with :meth:`close`."""
        if isinstance(voice, FlowPrefix):
            return FlowState(self.flow, voice.prompt, self.pool.share(voice.pages), voice)
        prompt = self.flow.check_prompt(voice)
        return FlowState(self.flow, prompt, [], FlowPrefix(prompt, [], self.pool.empty_tails(), 0))

    def close(self, held: FlowState | FlowPrefix) -> None:
        """Give back the pages of an utterance or of a voice; harmless when repeated."""
        if held.pages:
            self.pool.release(held.pages)
            held.pages.clear()

    def give_up(self, state: FlowState) -> None:
        """Take the pages of an utterance that is not under way, which loses nothing else."""
        self.close(state)
        state.pages = None
        state.tokens_done = state.tokens_given
        self.recomputing += 1
        if not self.recomputing & (self.recomputing - 1):  # the first, second, fourth ...
            logger.warning(
                "no free flow page of %d: utterances that lost theirs so far, to be computed again: %d",
                self.num_pages,
                self.recomputing,
            )

    def held_pages(self, state: FlowState) -> int:
        """Pages that the utterance alone holds."""
        return max(len(state.pages or ()) - len(state.prefix.pages), 0)

    def lost_pages(self, state: FlowState) -> int:
        """Pages that the utterance takes to be where it was when it lost them."""
        return 0 if state.pages is not None else self._own_pages(state, state.tokens_given)

    def wanted_pages(self, state: FlowState) -> int:
        """Pages that the next call takes for the utterance, those that it lost included."""
        span = state.next_span()
        if span is None:
            return 0
        if state.pages is None:
            return self._own_pages(state, span.start + span.count)
        return -(-span.count // self._block)

    def rewind(self, state: FlowState, mark: FlowMark) -> None:
        """Be again where the utterance was, and free the pages it took since; it may have lost all pages."""
        state.tokens_done, state.tokens_given, state.tails = mark.tokens_done, mark.tokens_given, mark.tails
        if state.pages is None:
            state.tokens_done = mark.tokens_given
            return
        self.settle()
        self.pool.release(state.pages[mark.num_pages or 0 :])
        del state.pages[mark.num_pages or 0 :]
        if mark.num_pages is None:
            state.pages = None

    def prefix_pages(self, prompt_tokens: int) -> int:
        return max(prompt_tokens - self.flow.lookahead_tokens, 0) // self._block

    @property
    def _block(self) -> int:
        return self.flow.config.encoder.chunk_tokens

    def _own_pages(self, state: FlowState, tokens: int) -> int:
        """Pages of so many tokens of an utterance, without those of its voice."""
        return -(-tokens // self._block) - len(state.prefix.pages)

    def _begin_again(self, states: Sequence[FlowState]) -> None:
        """Compute lost pages again where there is room for them and for what all others take."""
        lost = [state for state in states if state.pages is None and state.next_span() is not None]
        if not lost:
            return
        taken = sum(self.wanted_pages(state) for state in states if state.pages is not None)
        for state in lost:
            wanted = self.wanted_pages(state)
            if self._has_room(taken + wanted):
                taken += wanted
                self._from_the_voice_on(state)

    def _has_room(self, pages: int) -> bool:
        if pages > self.pool.num_pages:
            return False
        return self.pool.free_pages >= pages or self.pool.makes_room(pages)

    def _from_the_voice_on(self, state: FlowState) -> None:
        prefix = state.prefix
        if len(prefix.pages) * self._block < prefix.tokens_done:  # the voice has been closed since
            prefix = state.prefix = FlowPrefix(state.prompt, [], self.pool.empty_tails(), 0)
        state.pages = self.pool.share(prefix.pages)
        state.tokens_done, state.tails = prefix.tokens_done, prefix.tails

    def _next_work(self, states: Sequence[FlowState]) -> list[FlowWork]:
        """Work that can be computed now: of states with pages, at most what a call takes."""
        spans = [(row, state, state.next_span()) for row, state in enumerate(states)]
        work = [FlowWork(row, state, span) for row, state, span in spans if span is not None]
        paged = [item for item in work if item.state.pages is not None]
        parts = self.first_parts([item.span for item in paged])
        whole = [item for item in work if item.state.pages is None]
        return [*(item._replace(span=part) for item, part in zip(paged, parts, strict=True)), *whole]

    def _calls(self, work: Sequence[FlowWork]) -> Iterator[tuple[Sequence[FlowWork], Compute]]:
        """The calls that the work takes, once its pages are reserved."""
        paged = [item for item in work if self._reserve(item.state, item.span)]
        recomputed = [self._whole(item) for item in work if item.state.pages is None]
        for batch in self.batches(paged):
            yield batch, self.continued
        if recomputed:
            yield recomputed, self._recompute

    def _whole(self, item: FlowWork) -> FlowWork:
        """All that can be computed: recomputing part by part would begin anew for each."""
        return item._replace(span=item.state.next_span() or item.span)

    def _reserve(self, state: FlowState, span: TokenSpan) -> bool:
        """Make sure the state has pages for the span."""
        if state.pages is None:
            return False
        whole, rest = divmod(span.count, self._block)
        pages = self.pool.take(whole + bool(rest))
        if pages is None:
            self.settle()
            self.give_up(state)
            return False
        if rest:
            self.pool.clear(pages[-1])
        state.pages.extend(pages)
        return True

    def _recompute(self, work: Sequence[FlowWork]) -> list[Mel]:
        mels = self.recomputed([state.whole(span) for _, state, span in work])
        rate = self.flow.config.frames_per_token
        return [frames[rate * span.start :] for frames, (_, _, span) in zip(mels, work, strict=True)]

    def _emit(self, state: FlowState, span: TokenSpan, frames: Mel) -> Mel:
        """Advance the state past the span; frames ``[T, mel]`` without padding, prompt and those given."""
        rate = self.flow.config.frames_per_token
        state.tokens_done = span.start + span.count
        hidden = max(len(state.prompt.tokens), state.tokens_given) - span.start
        state.tokens_given = max(state.tokens_given, state.tokens_done)
        return self.cut(frames, rate * max(hidden, 0), rate * span.count)


def _done() -> None:
    """Nothing is under way where calls return when they are done."""
