"""One utterance while it is decoded: its tokens, its end, and which of its silence is spoken."""

from __future__ import annotations

import sys
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import CHECK_TELLS, SPEECH_LM, CosyVoiceError, InvalidInput, NotFiniteError
from cosyvoice_runtime.lm.prompt import PromptSegment, Table, num_positions
from cosyvoice_runtime.lm.sampling import NOT_FINITE, RUNAWAY_S, Barred, SamplerState, SamplingOptions
from cosyvoice_runtime.lm.text_rows import TextRows
from cosyvoice_runtime.lm.text_stream import StreamState, TextStream


class FinishReason(str, Enum):
    """Why no further token follows."""

    STOP = "stop"
    """The model drew a stop id."""
    LENGTH = "length"
    """The most tokens allowed, or the cache, was reached."""
    REPETITION = "repetition"
    """The output had become one short cycle."""
    INCOMPLETE = "incomplete"
    """Speech had stalled or gone round in circles, and the answer was ended there; no speech LM says so."""
    CANCELLED = "cancelled"
    ERROR = "error"


class TokenLimits(NamedTuple):
    """Fewest and most speech tokens of an utterance."""

    min_tokens: int
    max_tokens: int

    @classmethod
    def of(cls, options: SamplingOptions, num_text: int) -> TokenLimits:
        """The options' limits, or those that follow from ``num_text`` tokens of text without the prompt's."""
        lowest, highest = options.min_tokens, options.max_tokens
        if lowest is None:
            lowest = int(options.min_ratio * num_text)
        if highest is None:
            highest = min(int(options.max_ratio * num_text), options.ceiling or sys.maxsize)
        return cls(min(lowest, highest), highest)


def is_runaway(tokens: Sequence[int], span: int, max_period: int) -> bool:
    """Whether the last ``span`` tokens repeat a cycle of at most ``max_period`` tokens.

    False for a span of 0. A cycle counts only if it fits into the span at least twice.
    """
    if not 0 < span <= len(tokens):
        return False
    last = tokens[-1]
    for period in range(1, min(max_period, span // 2) + 1):
        if tokens[-1 - period] == last and tokens[-span:-period] == tokens[len(tokens) - span + period :]:
            return True
    return False


def runaway_not_before(tokens: Sequence[int], span: int, max_period: int) -> int:
    """Least number of tokens in all at which `is_runaway` can next hold.

    A token that is unlike all tokens a period before it is in no cycle.
    """
    if not span:
        return sys.maxsize
    said, periods = len(tokens), min(max_period, span // 2)
    if said < span:
        return span
    repeats = tokens[-1] in tokens[said - 1 - periods : said - 1]
    return said + 1 if repeats else said + span - periods


class Generation:
    """Handle of an utterance that is decoded.

    Attributes:
        tokens: speech tokens so far.
        given: the first of them, whatever is drawn: they have been spoken before.
        seed: with it and the same options the utterance can be repeated.
        finish_reason: None while it runs.
        error: the error, if the reason is ``error``.
        unfed: whether the last token has yet to be fed.
        pending: whether segments that were taken have yet to be fed.
        lost: positions that were fed and are no longer in the cache.
        stalled: whether it advances only by a feed of text, which is there or still to come.
        rows: what its tokens look at in its text; None where nobody asks.
        plain_until: while it has fewer speech tokens, and none of them is the last or the last of a block,
            each draw is followed by one more.
    """

    def __init__(
        self,
        config: SpeechLMConfig,
        options: SamplingOptions,
        prompt_speech: Sequence[int],
        limits: TokenLimits,
        feed: list[PromptSegment] | None = None,
        stream: TextStream | None = None,
        given: Sequence[int] = (),
    ) -> None:
        self.slot = -1
        self.tokens: list[int] = []
        self.given = given
        self.finish_reason: FinishReason | None = None
        self.error: CosyVoiceError | None = None
        self.rows: TextRows | None = None
        self.sampler = SamplerState(options, prompt_speech)
        self.limits = limits
        self.stream = stream
        self.unfed = False
        self.pending = False
        self.lost = 0
        self.stalled = stream is not None
        self._taken: list[tuple[int, list[PromptSegment]]] = []
        self._config = config
        self._speech_tokens = config.speech_tokens
        self._options = options
        span = options.runaway_span
        self._runaway_span = RUNAWAY_S * config.token_rate if span is None else span
        self._feed = feed
        self._look_ahead()

    @property
    def seed(self) -> int:
        return self.sampler.seed

    @property
    def waiting(self) -> bool:
        """Whether it advances only by more text."""
        return self.stalled and self.stream is not None and not self.stream.ready

    @property
    def must_fill(self) -> bool:
        """Whether the next id is the fill marker, without a draw."""
        return self.fills_after(0)

    def fills_after(self, tokens: int) -> bool:
        """`must_fill` once this many more speech tokens have been drawn."""
        return self.stream is not None and self.stream.fills_after(tokens)

    @property
    def barred(self) -> tuple[Barred, Barred]:
        """Stop ids that must not be drawn, below the minimum length and from it on."""
        if self.stream is not None and self.stream.state is StreamState.DECODING:
            return Barred.ALL_BUT_FILL, Barred.ALL_BUT_FILL
        return Barred.FIRST if self._options.upstream_min_length_mask else Barred.ALL, Barred.NONE

    @property
    def blocked(self) -> tuple[bool, ...]:
        """Which stop ids, in their order, must not be drawn next."""
        early, later = self.barred
        barred = later if len(self.tokens) >= self.limits.min_tokens else early
        stop_ids = self._config.stop_ids
        if barred is Barred.ALL_BUT_FILL:
            return tuple(stop != self._config.fill_id for stop in stop_ids)
        if barred is Barred.FIRST:
            return (True, *[False] * (len(stop_ids) - 1))
        return (barred is Barred.ALL,) * len(stop_ids)

    @property
    def unfed_prompt(self) -> int:
        """Positions that have yet to be fed, first or again; 0 while more text is awaited."""
        if self.waiting:
            return 0
        if self.lost or self.pending:
            return num_positions(self.transcript)
        return num_positions(self._feed or ())

    @property
    def transcript(self) -> list[PromptSegment]:
        """All segments taken and tokens drawn, in the order in which the cache holds them."""
        ends = [*(said for said, _ in self._taken[1:]), len(self.tokens)]
        segments: list[PromptSegment] = []
        for (said, taken), end in zip(self._taken, ends, strict=True):
            segments += taken
            if end > said:
                segments.append(PromptSegment(Table.SPEECH, self.tokens[said:end]))
        return segments

    def take_feed(self) -> list[PromptSegment] | None:
        """Segments to prefill now, if there are any."""
        if self.stream is None:
            feed, self._feed = self._feed, None
        else:
            feed = self.stream.take()
            self.stalled = self.stream.state is StreamState.WAITING
            self._look_ahead()
        if feed is not None:
            self._taken.append((len(self.tokens), feed))
        return feed

    def replay(self) -> None:
        """Accept given tokens without draws, as far as the text goes; what they follow is pending then, as if
        it had been fed and lost."""
        while len(self.tokens) < len(self.given) and self.finish_reason is None:
            if self.take_feed() is None and self.stalled:
                return
            self.accept(self._config.fill_id if self.must_fill else self.given[len(self.tokens)])
            self.pending = self.unfed = self.finish_reason is None and not self.stalled

    def push_text(self, ids: Sequence[int]) -> None:
        """Add text to the stream; raises `InvalidInput` if it takes none (any more)."""
        self._open_stream().push(ids)

    def end_text(self) -> None:
        """Close the stream and set the limits that follow from its length; raises `InvalidInput`."""
        stream = self._open_stream()
        if not stream.num_text:
            raise InvalidInput("text", [], "at least one text token is needed")
        stream.end()
        self.limits = TokenLimits.of(self._options, stream.num_text)
        self._look_ahead()

    def accept(self, token: int) -> int | None:
        """Apply a drawn id, or the given token in its place; returns it if it is speech.

        Sets `finish_reason` when the utterance ends with it.
        """
        if token == NOT_FINITE:
            self.finish(FinishReason.ERROR, NotFiniteError(SPEECH_LM, CHECK_TELLS))
            return None
        decoding = self.stream is not None and self.stream.state is StreamState.DECODING
        if len(self.tokens) < len(self.given) and not (decoding and token == self._config.fill_id):
            token = self.given[len(self.tokens)]
        self.sampler.history.append(token)
        if self.stream is not None and decoding:
            self.stream.accept(token)
            if token == self._config.fill_id:
                self.stalled = True
                return None
        if token >= self._speech_tokens:
            self.finish(FinishReason.STOP)
            return None
        self.tokens.append(token)
        self.unfed = True
        if len(self.tokens) >= self._may_end_at:
            self._end_or_go_on()
        return token

    def finish(self, reason: FinishReason, error: CosyVoiceError | None = None) -> None:
        """End the utterance; the first reason stays."""
        if self.finish_reason is None:
            self.finish_reason, self.error = reason, error

    def _open_stream(self) -> TextStream:
        if self.stream is None or self.stream.ended:
            raise InvalidInput("text", "further text", "the text of this utterance is complete")
        return self.stream

    def _look_ahead(self) -> None:
        """Find how many tokens may follow before limits or the stream change again."""
        self._may_end_at = 0
        self.plain_until = self.limits.max_tokens
        if self.stream is not None and self.stream.state is StreamState.DECODING:
            self.plain_until = min(self.plain_until, len(self.tokens) + self.stream.speech_left)

    def _end_or_go_on(self) -> None:
        runaway = self._runaway_span, self._options.runaway_period
        if is_runaway(self.tokens, *runaway):
            self.finish(FinishReason.REPETITION)
        elif len(self.tokens) >= self.limits.max_tokens:
            self.finish(FinishReason.LENGTH)
        self._may_end_at = min(self.limits.max_tokens, runaway_not_before(self.tokens, *runaway))


Drawn = tuple[Generation, int, int]
"""An utterance, the id drawn for it, and the position at which the cache holds it if it is speech."""


@dataclass(slots=True)  # There is one for each token; a NamedTuple takes twice as long.
class Progress:
    """Progress of one utterance in a step.

    Attributes:
        handle: the handle that the engine's ``add`` returned.
        tokens: new speech tokens.
        finish_reason: set once, with the last tokens; the slot is free then.
        error: the error of this utterance alone, if the reason is ``error``.
    """

    handle: Hashable
    tokens: Sequence[int]
    finish_reason: FinishReason | None = None
    error: CosyVoiceError | None = None


MOST_IN_A_RUN = 5
"""Silent tokens that are spoken one after another: 0.2 s (FunAudioLLM/CosyVoice ``ace7c47``)."""


class SilenceFilter:
    """Drops an utterance's silence beyond the first few tokens of each run.

    The speech LM's own history keeps all tokens.

    Args:
        silent: speech codes without sound; any of them continues a run.
    """

    def __init__(self, silent: Collection[int]) -> None:
        self._silent = silent
        self._run = 0

    def __call__(self, tokens: Sequence[int]) -> list[int]:
        """The tokens among the next ones that are spoken."""
        if not self._silent:
            return list(tokens)
        return [token for token in tokens if self.speaks(token)]

    def speaks(self, token: int) -> bool:
        """Whether the next token is spoken."""
        self._run = self._run + 1 if token in self._silent else 0
        return self._run <= MOST_IN_A_RUN
