"""A text that is spoken while it comes."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Iterable
from contextlib import aclosing
from typing import NamedTuple

from cosyvoice_client import AudioChunk, RefusedError
from cosyvoice_client.words import TimedWord
from cosyvoice_front import audit, request_id
from cosyvoice_front.errors import ApiError, broken, timed_out
from cosyvoice_front.front import Front
from cosyvoice_front.heard_words import HeardWords, LeavingWords
from cosyvoice_front.live.happenings import Finished, Flushed, Tell, Words
from cosyvoice_front.live.manner import Manner
from cosyvoice_front.live.outlet import Outlet
from cosyvoice_front.live.together import together
from cosyvoice_front.live.transcript import Transcript
from cosyvoice_front.pause import pause
from cosyvoice_front.rate import at_front_rate
from cosyvoice_front.resume import TextSpeech
from cosyvoice_front.spoken import Tally
from cosyvoice_runtime.alignment.estimate import WordTimes
from cosyvoice_runtime.speakable import without_controls

logger = logging.getLogger(__name__)

MOST_AHEAD = 4000
"""Characters that the server has and the listener has not heard: they bound the speech that waits here for a
listener who reads slowly. More than the server takes to say how much of a text it has spoken."""
MORE = 40
"""Characters that the server gets beside them, each time that it would end the text for want of more."""


class Flush(NamedTuple):
    """A place in the text where a segment ends.

    Attributes:
        worded: end of the last word before it.
        told: how often the listener asked for it, and is told when the text before it has been spoken.
    """

    position: int
    worded: int
    told: int


class Context:
    """One stream of speech, from the text that has come to the audio that leaves.

    ``push``, ``flush`` and ``end`` return at once; ``run`` speaks until the end of the text. Cancelling the
    task of ``run`` ends the utterance on the server.

    Args:
        owner: whose limits count.
        tell: takes what happens, in order. It may wait: no more audio is fetched until it returns.

    Attributes:
        entry: of the audit log.
    """

    def __init__(self, front: Front, owner: str, manner: Manner, tell: Tell) -> None:
        self._front = front
        self._owner = owner
        self._manner = manner
        self._tell = tell
        self._outlet = Outlet(manner.encoder, front.pool, tell)
        markup = front.markup(manner.request.text_markup)
        self._transcript = Transcript(markup)
        times = WordTimes(manner.request.speed or 1.0, markup) if manner.request.words else None
        self._words = HeardWords(times)
        self._leaving: LeavingWords[TimedWord] = LeavingWords()
        self._tally = Tally()
        self.entry = audit.current().utterance(manner.request, manner.format, self._tally)
        self._changed = asyncio.Event()
        self._ended = self._fed = False
        self._refusal: ApiError | None = None
        self._pushed = self._more = 0
        self._given_s = 0.0
        self._flushed = Flush(0, 0, 0)
        self._asked: deque[Flush] = deque()
        self._awaited: deque[Flush] = deque()

    @property
    def unspoken_bytes(self) -> int:
        """Of text that waits to be spoken."""
        return self._transcript.unspoken_bytes

    @property
    def is_ended(self) -> bool:
        """Whether no more text may come."""
        return self._ended

    def push(self, text: str) -> None:
        """More of the text; after a refusal none is taken."""
        if self._refusal is None:
            self._transcript.add(text)
            self.entry.characters = self._transcript.received
            self._words.add(text)
            self._changed.set()

    def flush(self) -> None:
        """Speak all that has come to its end; the listener is told when it has been."""
        self._flush(told=1)

    def end(self) -> None:
        """No more text comes."""
        self._ended = True
        self._transcript.end()
        self._changed.set()

    def close(self) -> None:
        """Let go of what it holds, when ``run`` has ended or is not called."""
        self._outlet.close()

    async def cut(self) -> None:
        """Let the audio fade out and end, before ``run`` is cancelled or after it has failed."""
        await self._outlet.cut()

    async def run(self) -> None:
        """Speak what is pushed until the end of the text.

        Raises:
            ApiError: a limit is reached, the text doesn't go on, or the server can't speak.
        """
        if await self._words_come():
            await self._speak()
        else:
            await self._be_silent()
        await self._outlet.finish()
        self._leave(self._words.finish())
        await self._tell_words(math.inf)
        if self._refusal is not None:
            raise self._refusal
        reason, seconds = self._tally.finish_reason or "stop", self._tally.seconds
        logger.info("%d characters, %.2f s of speech: %s", self._transcript.received, seconds, reason)
        await self._tell(Finished(reason, seconds, self._tally.verification))

    async def _words_come(self) -> bool:
        """Wait for the first word, or for the end of a text without any."""
        while not self._transcript.worded:
            if self._ended:
                return False
            while self._asked:
                _add(self._awaited, self._asked.popleft())
            await self._tell_flushes()
            await self._wait()
        return True

    async def _be_silent(self) -> None:
        """A text of punctuation alone is a pause, as for a whole text."""
        if without_controls(self._transcript.between(0, self._transcript.received)).strip():
            async for chunk in pause():
                await self._hear(chunk)

    async def _speak(self) -> None:
        request, name = self._manner.request, request_id.current.get()
        async with (
            self._front.place(self._owner, 0, self._tally),
            self._front.server.speak_text(request, name, self._owner) as speech,
        ):
            await together(self._feed(speech), self._listen(speech))

    async def _feed(self, speech: TextSpeech) -> None:
        """Hand the text on, and end it. What the server has is spoken though more of it is refused."""
        try:
            await self._hand_on(speech)
        except (ApiError, RefusedError) as error:
            if not self._pushed:
                raise
            self._refuse(error)
        self._fed = True
        await speech.end()

    def _refuse(self, error: ApiError | RefusedError) -> None:
        """Forget what the server doesn't have."""
        self._refusal = error if isinstance(error, ApiError) else self._front.server.told(error)
        self._transcript.cut(self._pushed)
        self._words.cut(self._pushed)

    async def _hand_on(self, speech: TextSpeech) -> None:
        """Until the end of the text, as it comes. Text without a word is kept until one follows."""
        while True:
            until = self._asked[0] if self._asked else self._here(told=0)
            has_words = until.worded > self._flushed.position
            reach = min(until.position, self._transcript.spoken + MOST_AHEAD + self._more)
            if has_words and self._pushed < reach:
                await self._push(speech, reach)
            elif has_words and self._pushed < until.position:
                await self._wait()
            elif self._asked:
                await self._pass_flush(speech if has_words else None)
            elif self._ended:
                return
            else:
                await self._wait()

    async def _push(self, speech: TextSpeech, until: int) -> None:
        text = self._transcript.between(self._pushed, until)
        await self._front.spend(self._owner, len(text))
        await speech.push(text)
        self._pushed, self._given_s = until, time.monotonic()

    async def _pass_flush(self, speech: TextSpeech | None) -> None:
        """Pass on the oldest flush that was asked for; speech is None where no text followed the last one."""
        flush = self._asked.popleft()
        if speech is not None:
            await speech.flush()
        self._flushed = flush._replace(position=min(flush.position, self._pushed))
        _add(self._awaited, flush)
        await self._tell_flushes()

    async def _wait(self) -> None:
        """Wait for more text, for a segment's end, or until waiting has lasted too long."""
        self._changed.clear()
        try:
            async with asyncio.timeout(self._patience_s()):
                await self._changed.wait()
        except TimeoutError:
            if self._is_ahead:
                self._more, self._given_s = self._more + MORE, time.monotonic()
            elif self._pushed == self._flushed.position:
                limit_s = self._front.settings.front.idle_timeout_s
                raise timed_out(f"No text came for {limit_s:g} s; the context has ended.") from None
            else:
                self._flush(told=0)

    def _patience_s(self) -> float | None:
        if self._is_ahead:  # the listener is behind; the server ends a text of which nothing comes
            return max(0.0, self._given_s + self._front.settings.front.idle_timeout_s - time.monotonic())
        if self._pushed > self._flushed.position:
            return self._manner.most_delay_s
        if self._flushed.worded > self._transcript.spoken:
            return None  # the server speaks, and may be silent only for so long
        return self._front.settings.front.idle_timeout_s

    @property
    def _is_ahead(self) -> bool:
        return self._pushed - self._transcript.spoken >= MOST_AHEAD

    async def _listen(self, speech: TextSpeech) -> None:
        async with aclosing(at_front_rate(speech)) as chunks:
            async for chunk in chunks:
                await self._hear(chunk)
        if not self._fed:
            logger.error("the server has ended the speech before its text")
            raise broken()

    async def _hear(self, chunk: AudioChunk) -> None:
        self._tally.add(chunk)
        await self._outlet.play(chunk.samples)
        self._leave(self._words.hear(chunk))
        if chunk.finish_reason:
            self._end_segment(chunk.spoken_characters)
        await self._tell_words(self._tally.seconds - self._manner.encoder.behind_s)
        await self._tell_flushes()

    def _end_segment(self, spoken: int | None) -> None:
        position = self._transcript.received if spoken is None else spoken
        self._transcript.speak(position)
        self._changed.set()
        self._leave(self._words.end_segment(position))

    def _leave(self, words: Iterable[TimedWord]) -> None:
        for word in words:
            self._leaving.add(word, word.end_s, self._words.by)

    async def _tell_words(self, left_s: float) -> None:
        """Tell the words that are over when so many seconds of audio have left."""
        for by, words in self._leaving.taken(left_s):
            await self._tell(Words(words, by))

    async def _tell_flushes(self) -> None:
        while self._awaited and self._awaited[0].worded <= self._transcript.spoken:
            for _ in range(self._awaited.popleft().told):
                await self._tell(Flushed())

    def _flush(self, *, told: int) -> None:
        _add(self._asked, self._here(told))
        self._words.bar(self._transcript.received)
        self._changed.set()

    def _here(self, told: int) -> Flush:
        return Flush(self._transcript.received, self._transcript.worded, told)


def _add(flushes: deque[Flush], flush: Flush) -> None:
    """Flushes with no word between them are one, however often they are asked for."""
    if flushes and flushes[-1].worded == flush.worded:
        first = flushes.pop()
        flush = first._replace(told=first.told + flush.told)
    flushes.append(flush)
