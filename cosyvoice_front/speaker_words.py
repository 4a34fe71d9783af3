"""When each word of an answer is heard, and in whose turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from itertools import accumulate
from typing import Any

from cosyvoice_client import AudioChunk
from cosyvoice_client.words import TimedWord
from cosyvoice_front.heard_words import HeardWords, LeavingWords
from cosyvoice_runtime.alignment.estimate import WordTimes
from cosyvoice_runtime.text.markup.unsaid import PLAIN, blanked


class SpeakerWords:
    """Times the words of one turn after another.

    Args:
        turns: the voice and the text of each turn.
        speed: how much faster than the voice's own the speech is.
        markup: of the texts, whose tags are no words.
    """

    def __init__(self, turns: Sequence[tuple[str, str]], speed: float, markup: str | None) -> None:
        self._voices = [voice for voice, _ in turns]
        self._ends = list(accumulate(len(text) for _, text in turns))
        self._words = HeardWords(WordTimes(speed, PLAIN))
        for (_, text), end in zip(turns, self._ends, strict=True):
            self._words.add(blanked(text, markup))
            self._words.bar(end)
        self._leaving: LeavingWords[dict[str, Any]] = LeavingWords()

    async def watch(self, chunks: AsyncGenerator[AudioChunk, None]) -> AsyncGenerator[AudioChunk, None]:
        """The same chunks, whose words are timed."""
        async with aclosing(chunks):
            async for chunk in chunks:
                self._hear(chunk)
                yield chunk
        self._tell(self._words.finish())

    def taken(self, left_s: float) -> list[tuple[str, list[dict[str, Any]]]]:
        """The words that were not taken before and are over when this many seconds of audio have left, each
        with its voice and its seconds, behind the method by which they are timed."""
        return self._leaving.taken(left_s)

    def _hear(self, chunk: AudioChunk) -> None:
        self._tell(self._words.hear(chunk))
        if chunk.spoken_characters is not None and len(self._voices) > 1:
            self._tell(self._words.end_segment(self._ends.pop(0)))
            del self._voices[0]

    def _tell(self, words: Iterable[TimedWord]) -> None:
        for text, start_s, end_s in words:
            times = {"start_s": round(start_s, 3), "end_s": round(end_s, 3)}
            self._leaving.add({"word": text, **times, "voice": self._voices[0]}, end_s, self._words.by)
