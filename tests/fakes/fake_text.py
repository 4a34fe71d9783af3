"""Stands for a text stream of the speech server: every character lasts as long as every other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from cosyvoice_client import SAMPLE_RATE, AudioChunk, RefusedError, SpeechRequest
from cosyvoice_client.words import TimedWord

if TYPE_CHECKING:
    from fake_upstream import FakeUpstream

CHARACTER_S = 0.05
LONGEST = 1000
"""Characters that are a segment without a mark or a flush."""
CLAUSE = re.compile(r"[,.!?。，]")


class FakeTextSpeech:
    """Speaks a clause when it is whole, the rest at a flush and at the end.

    Attributes:
        pushed: pieces of text, in order; ``|`` stands for a flush.
        is_complete: whether no more text comes.
        is_whole: whether all has been spoken.
    """

    def __init__(self, upstream: FakeUpstream, request: SpeechRequest) -> None:
        self._upstream = upstream
        self.request = request
        self.pushed: list[str] = []
        self.is_complete = self.is_whole = False
        self._text = ""
        self._spoken = self._told = 0
        self._chunks: asyncio.Queue[AudioChunk | None] = asyncio.Queue()

    async def __aenter__(self) -> FakeTextSpeech:
        self._upstream.active += 1
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._upstream.may_leave is not None:
            await self._upstream.may_leave.wait()
        self._upstream.active -= 1
        self._upstream.cancelled += not self.is_whole

    async def push(self, text: str) -> None:
        characters = len(self._text) + len(text)
        if characters > self._upstream.most_characters:
            limit = f"at most {self._upstream.most_characters} characters"
            message = f"target_text: '{characters} characters' is not accepted; expected {limit}"
            raise RefusedError(f"{self._upstream.url}: {message}", "invalid_argument")
        self.pushed.append(text)
        self._text += text
        while len(self._text) - self._spoken > LONGEST:
            self._speak(self._spoken + LONGEST, "stop")
        marks = [match.end() for match in CLAUSE.finditer(self._text, self._spoken)]
        if marks:
            self._speak(marks[-1], "stop" if self._upstream.ends_segments else "")

    async def flush(self) -> None:
        self.pushed.append("|")
        self._speak(len(self._text), "stop")

    async def end(self) -> None:
        self.is_complete = True
        if not self._text:
            message = "target_text: '' is not accepted; expected something to speak"
            raise RefusedError(f"{self._upstream.url}: {message}", "invalid_argument")
        self._speak(len(self._text), "stop")
        self._chunks.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[AudioChunk]:
        count = 0
        while (chunk := await self._chunks.get()) is not None:
            self._upstream.fail_at(count)
            if self._upstream.gates is not None and count:
                await self._upstream.gates.acquire()
            yield chunk
            count += 1
        self.is_whole = True

    def _speak(self, until: int, reason: str) -> None:
        from fake_upstream import tone

        samples = tone((until - self._spoken) * CHARACTER_S)
        self._spoken = until
        if len(samples) or reason:
            spoken = until if reason else None
            by = self._upstream.words_by if self.request.words else ""
            chunk = AudioChunk(samples, 0.0, reason, spoken, self._upstream.rate)
            self._chunks.put_nowait(replace(chunk, words=self._words() if by else (), words_by=by))

    def _words(self) -> list[TimedWord]:
        """The words that are over by now and were not told before."""
        words = [
            TimedWord(found[0], found.start() * CHARACTER_S, found.end() * CHARACTER_S)
            for found in re.finditer(r"\S+", self._text[: self._spoken])
        ]
        self._told, told = len(words), self._told
        return words[told:]


def samples_of(text: str) -> int:
    """How many samples the fake takes for a text."""
    return round(len(text) * CHARACTER_S * SAMPLE_RATE)
