"""Speech that goes on from another server when its own is lost.

The same request is asked for again, with the speech tokens that the lost server has told, of which the same
speech is made again. What the listener has is left out, and the first and the last half second of that are
compared with the new one before anything is joined to it. With the same tokens it only has to sound alike, as
a GPU's sums depend on what it computes beside them. Without tokens, the same seed gives the same speech where
networks compute it to the same bits.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from cosyvoice_client import AudioChunk, ClientError, UnavailableError
from cosyvoice_client.chunk import INCOMPLETE
from cosyvoice_client.errors import LostError
from cosyvoice_client.words import TimedWord
from cosyvoice_front.joining import best_shift, joined, sound_alike

logger = logging.getLogger(__name__)

MOST_LOSSES = 2
"""Servers of an utterance that may be lost after they have spoken; the third ends it."""
SEARCH_S = 60.0
"""The longest time in which a server is looked for that goes on: while a balancer still asks the lost one, or
until one that is full has a place. A listener mostly has some seconds of speech in hand, and rather hears a
silence than no end."""
SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.1, 1.0
"""The bounds of the wait before servers are asked again that are full, or not there."""
OVERLAP_S = 0.5
"""The first and the last seconds that have been sent, which are compared."""
CATCH_UP_S = 60.0
"""The longest time that a repetition takes to come as far as what has been sent."""
TOLERANCE = 5e-3
"""The largest difference of two samples that is rounding, so that they are joined as they are; full scale is
1. Batches on a CPU do by 3e-3."""

Counted = Callable[[str], None]
"""Called with ``resumed`` when another server goes on, or ``differs`` when its speech is another."""


class DifferentSpeechError(Exception):
    """A repetition is not the same speech, or takes too long."""


class HeardSpeech:
    """The samples of an utterance that have been sent, and those of a repetition that are new.

    A repetition begins where the speech did, or with the last segment that :meth:`end_segment` has not ended.

    Attributes:
        samples: how many have been sent.
        tokens: the speech tokens that those of a repetition come from, as servers tell them.
        spoken: whether the present server has said anything.
    """

    def __init__(self) -> None:
        self.samples = self._base = self._position = 0
        self._segments = self._shift = self._words = 0
        self._word_s = 0.0
        self.end_segment()
        self.begin_again()

    def begin_again(self) -> None:
        """The next chunk is the first one of a repetition."""
        self._position, self._begun = self._base - self._shift, time.monotonic()
        self.spoken = False
        self._words_from = self._base
        """Samples that had been sent where the present server's answer begins: its words count from there."""
        self._forget()

    def end_segment(self) -> None:
        """A repetition begins with what comes next."""
        self.tokens: list[int] = []
        self._base = self._position = self.samples
        self._segments = self._shift = self._words = 0
        self._head = self._tail = np.zeros(0, np.float32)
        self._forget()

    def _forget(self) -> None:
        """Forget what the present server has said."""
        self._ended = 0
        self._told: list[int] = []
        self._told_words: list[TimedWord] = []
        self._again = np.zeros(0, np.float32)
        self._is_exact = True

    def new(self, chunk: AudioChunk) -> AudioChunk | None:
        """The part of a chunk that has not been sent; None where all of it has.

        Raises:
            DifferentSpeechError: it differs from what has been sent, or is too late.
        """
        begin, self._position = self._position, self._position + len(chunk.samples)
        self.spoken = self.spoken or len(chunk.samples) > 0
        self._told += chunk.spoken_tokens
        begun_s = self._words_from / chunk.sample_rate
        self._told_words += [
            TimedWord(word.text, begun_s + word.start_s, begun_s + word.end_s) for word in chunk.words
        ]
        self.tokens = max(self.tokens, self._told, key=len)
        self._compare(chunk.samples, begin, self._head, self._base)
        self._compare(chunk.samples, begin, self._tail, self.samples - len(self._tail))
        rest = chunk.samples[max(0, self.samples - begin) :]
        kept = 2 * len(self._tail) + len(chunk.samples)
        self._again = np.concatenate([self._again, chunk.samples])[-kept:]
        if begin < self.samples and not self._is_exact:
            rest = self._goes_on(chunk)
        ends_again = chunk.finish_reason != "" and self._ended < self._segments
        self._ended += chunk.finish_reason != ""
        is_told = begin < self.samples or chunk.finish_reason
        if not len(rest) and is_told and self._ended <= self._segments:
            if time.monotonic() - self._begun > CATCH_UP_S:
                raise DifferentSpeechError
            return None
        self.samples, self._segments = self.samples + len(rest), max(self._ended, self._segments)
        keep = round(OVERLAP_S * chunk.sample_rate)
        self._head = np.concatenate([self._head, rest[: keep - len(self._head)]])
        self._tail = np.concatenate([self._tail, rest[-keep:]])[-keep:]
        chunk = dataclasses.replace(chunk, samples=rest, words=self._new_words())
        # Rounding may move an end that has been told, so that it comes with new samples.
        if not ends_again:
            return chunk
        return dataclasses.replace(chunk, finish_reason="", spoken_characters=None, verification=None)

    def _new_words(self) -> list[TimedWord]:
        """The words that have not been told. Those of a repetition are the same, at about the same times."""
        new = self._told_words[self._words :]
        self._words = max(self._words, len(self._told_words))
        begun_s, self._word_s = self._word_s, max([self._word_s, *(word.end_s for word in new)])
        return [TimedWord(text, max(begun_s, start_s), max(begun_s, end_s)) for text, start_s, end_s in new]

    def _goes_on(self, chunk: AudioChunk) -> Any:
        """The new samples of a repetition that is not the same to the sample, once it has come so far."""
        rate = chunk.sample_rate
        if self._position < self.samples:
            return chunk.samples[:0]
        place = len(self._again) - (self._position - self.samples)
        size = min(len(self._tail), place)
        is_told = self.tokens and self._told[: len(self.tokens)] == self.tokens
        if not is_told or not sound_alike(self._tail[-size:], self._again[place - size : place], rate):
            raise DifferentSpeechError
        if not (chunk.finish_reason and self._position == self.samples):
            shift = best_shift(self._tail, self._again, place, rate)
            place, self._shift = place + shift, self._shift + shift
        size = min(len(self._tail), place)
        rest = joined(self._tail, self._again, place, rate)
        self._tail = self._again[place - size : place]  # The next repetition is laid beside this one alone.
        self._position = self.samples + len(rest)
        return rest

    def end(self) -> None:
        """Raise a DifferentSpeechError if the repetition has ended before what has been sent."""
        if self._position < self.samples:
            raise DifferentSpeechError

    def _compare(self, samples: Any, begin: int, kept: Any, kept_begin: int) -> None:
        first, last = max(begin, kept_begin), min(begin + len(samples), kept_begin + len(kept))
        if first >= last:
            return
        apart = samples[first - begin : last - begin] - kept[first - kept_begin : last - kept_begin]
        self._is_exact = self._is_exact and np.abs(apart).max() <= TOLERANCE
        if not self._is_exact and not self.tokens:
            raise DifferentSpeechError


class Losses:
    """Decides whether an utterance whose server is lost is asked for again."""

    def __init__(self, heard: HeardSpeech, counted: Counted) -> None:
        self._heard = heard
        self._counted = counted
        self._count = 0
        self._since: float | None = None
        self._wait_s = 0.0
        self._lost: UnavailableError | None = None

    async def bear(self, error: ClientError) -> None:
        """Return when the utterance is to be asked for again; else raise the error that ends it.

        A refusal ends it. Where only the going on is refused, the loss before it is raised, because whoever
        listens has not asked for that.

        One of which nothing has been heard is asked for again if a connection was lost under it, and not if
        it was refused, or several servers have been asked: it may be what ends them.
        """
        if not isinstance(error, UnavailableError):
            raise self._refused(error)
        spoken, self._wait_s = self._heard.spoken, 2 * self._wait_s
        if spoken:
            self._count, self._since, self._wait_s = self._count + 1, time.monotonic(), 0.0
            self._lost = error
        elif not self._heard.samples:
            self._count += 1
            self._lost = error if isinstance(error, LostError) and error.tries == 1 else None
        is_over = self._since is not None and time.monotonic() - self._since > SEARCH_S
        if self._lost is None or self._count > MOST_LOSSES or is_over:
            raise self._lost or error
        if spoken:
            logger.warning("asked for again after %d samples: %s", self._heard.samples, error)
            self._counted("resumed")
        else:
            self._wait_s = min(max(self._wait_s, error.retry_after_s or SHORTEST_WAIT_S), LONGEST_WAIT_S)
            await asyncio.sleep(self._wait_s)
        self._heard.begin_again()

    def _refused(self, error: ClientError) -> ClientError:
        if self._lost is None or not self._heard.samples or self._heard.spoken:
            return error
        logger.warning("no server goes on after %d samples: %s", self._heard.samples, error)
        return self._lost

    def differs(self) -> ClientError:
        """The error that ends an utterance whose repetition is another speech."""
        logger.warning("the repetition is another speech, so the utterance ends where its server was lost")
        self._counted("differs")
        return self._lost or UnavailableError("the speech of this server differs")


async def unbroken(
    speak: Callable[[Sequence[int], int | None], AsyncGenerator[AudioChunk, None]],
    counted: Counted,
    characters: int = 0,
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks of a whole text's speech, whichever server makes them.

    Args:
        speak: asks a server for the speech from this character on, which has these tokens so far; None is
            the character that the request asks for.
        characters: of a text of which another server may begin with a segment, where one before it has ended
            and told that; 0 where none may.

    Raises:
        ClientError: no server goes on with it.
    """
    heard = HeardSpeech()
    losses = Losses(heard, counted)
    start = None
    while True:
        try:
            async with aclosing(speak(heard.tokens, start)) as chunks:
                async for chunk in chunks:
                    if (new := heard.new(chunk)) is not None:
                        yield new
                    spoken = chunk.spoken_characters
                    if spoken is not None and spoken < characters and chunk.finish_reason != INCOMPLETE:
                        start = spoken
                        heard.end_segment()
            heard.end()
            return
        except ClientError as error:
            await losses.bear(error)
        except DifferentSpeechError:
            raise losses.differs() from None


class TextSpeech(Protocol):
    """The part of :class:`~cosyvoice_client.TextSpeech` that is needed here."""

    async def push(self, text: str) -> None:
        """More of the text."""

    async def flush(self) -> None:
        """All that has been pushed is spoken to its end; later text begins a new segment."""

    async def end(self) -> None:
        """No more text comes."""

    def __aiter__(self) -> AsyncIterator[AudioChunk]:
        """Chunks in order, until the end of the text."""


class UnbrokenText:
    """Speech of a text that comes piece by piece, whichever server makes it, used in ``async with``.

    Args:
        open_text: opens the same utterance with a server, which has these tokens so far.
    """

    def __init__(
        self, open_text: Callable[[Sequence[int]], AbstractAsyncContextManager[TextSpeech]], counted: Counted
    ) -> None:
        self._open_text = open_text
        self._heard = HeardSpeech()
        self._losses = Losses(self._heard, counted)
        self._said: list[tuple[str, tuple[str, ...]]] = []
        self._speech: TextSpeech | None = None
        self._failure: ClientError | None = None
        self._lock = asyncio.Lock()
        self._held = AsyncExitStack()

    async def push(self, text: str) -> None:
        """Add text."""
        await self._say("push", text)

    async def flush(self) -> None:
        """Have all text so far spoken to its end."""
        await self._say("flush")

    async def end(self) -> None:
        """Say that no more text comes."""
        await self._say("end")

    async def __aiter__(self) -> AsyncGenerator[AudioChunk, None]:
        while True:
            async with self._lock:
                speech = self._present()
            try:
                async for chunk in speech:
                    if speech is not self._speech:
                        break  # What the lost server had still made comes again from the other one.
                    if (new := self._heard.new(chunk)) is not None:
                        yield new
                if speech is self._speech:
                    self._heard.end()
                    return
            except ClientError as error:
                async with self._lock:
                    if speech is self._speech:
                        await self._go_on(error)
            except DifferentSpeechError:
                raise self._losses.differs() from None

    async def __aenter__(self) -> UnbrokenText:
        while True:
            try:
                self._speech = await self._held.enter_async_context(self._open_text(()))
                return self
            except UnavailableError as error:
                await self._losses.bear(error)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._held.__aexit__(exc_type, exc, traceback)

    async def _say(self, event: str, *text: str) -> None:
        async with self._lock:
            while True:
                try:
                    await getattr(self._present(), event)(*text)
                    break
                except UnavailableError as error:
                    await self._go_on(error)
            self._note(event, text)

    def _note(self, event: str, text: tuple[str, ...]) -> None:
        """Keep what a server has taken. Pieces of text that follow each other are one, so that they are said
        again in one message."""
        if text and self._said and self._said[-1][0] == event:
            text = (self._said.pop()[1][0] + text[0],)
        self._said.append((event, text))

    async def _go_on(self, error: ClientError) -> None:
        """Open the utterance with another server, and say all that has been said."""
        self._speech = None  # Its chunks count no more, because those of the other server do.
        while True:
            try:
                await self._losses.bear(error)
            except ClientError as failure:
                self._failure = failure
                raise
            try:
                with suppress(ClientError):
                    await self._held.aclose()
                opening = self._open_text(self._heard.tokens)
                self._speech = await self._held.enter_async_context(opening)
                for event, text in self._said:
                    await getattr(self._speech, event)(*text)
                return
            except ClientError as again:
                error = again

    def _present(self) -> TextSpeech:
        """The speech of the present server; the error that has ended it is raised."""
        if self._failure is not None:
            raise self._failure
        assert self._speech is not None
        return self._speech
