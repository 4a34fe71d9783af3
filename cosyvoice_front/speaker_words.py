"""When each word of an answer is heard, and in whose turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from cosyvoice_client import AudioChunk
from cosyvoice_runtime.alignment.estimate import WordTimes
from cosyvoice_runtime.alignment.words import TimedWord


class SpeakerWords:
    """Times the words of one turn after another, by the estimate of :class:`WordTimes`.

    Args:
        turns: the voice and the text of each turn.
        speed: how much faster than the voice's own the speech is.
        markup: of the texts, whose tags are no words.
    """

    def __init__(self, turns: Sequence[tuple[str, str]], speed: float, markup: str | None) -> None:
        self._turns, self._were_turns = list(turns), len(turns) > 1
        self._speed, self._markup = speed, markup
        self._told: list[dict[str, Any]] = []
        self._heard_s = self._begun_s = 0.0
        self._begin()

    async def watch(self, chunks: AsyncGenerator[AudioChunk, None]) -> AsyncGenerator[AudioChunk, None]:
        """The same chunks, whose words are timed."""
        async with aclosing(chunks):
            async for chunk in chunks:
                self._hear(chunk)
                yield chunk
        self._tell(self._times.finish())

    def taken(self) -> list[dict[str, Any]]:
        """The words that are over by now and were not taken before, each with its voice and its seconds."""
        told, self._told = self._told, []
        return told

    def _begin(self) -> None:
        self._times, self._begun_s = WordTimes(self._speed, self._markup), self._heard_s
        self._times.add(self._turns[0][1])

    def _hear(self, chunk: AudioChunk) -> None:
        self._heard_s += chunk.seconds
        self._tell(self._times.hear(chunk.samples))
        if chunk.spoken_characters is None:
            return
        if len(self._turns) > 1:
            self._tell(self._times.end_segment(len(self._turns[0][1])))
            del self._turns[0]
            self._begin()
        elif not self._were_turns:
            self._tell(self._times.end_segment(chunk.spoken_characters))

    def _tell(self, words: Sequence[TimedWord]) -> None:
        voice = self._turns[0][0]
        for word in words:
            start_s, end_s = (round(self._begun_s + second, 3) for second in word[1:])
            self._told.append({"word": word.text, "start_s": start_s, "end_s": end_s, "voice": voice})
