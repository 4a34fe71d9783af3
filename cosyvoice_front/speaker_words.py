"""When each word of an answer is heard, and in whose turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from itertools import accumulate
from typing import Any

from cosyvoice_client import AudioChunk
from cosyvoice_client.chinese_words import ChineseWords, WordUnit
from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_client.words import TimedWord
from cosyvoice_front.errors import invalid
from cosyvoice_front.heard_words import HeardWords, LeavingWords
from cosyvoice_runtime.alignment.estimate import WordTimes
from cosyvoice_runtime.text.markup.unsaid import PLAIN, blanked


class SpeakerWords:
    """Times the words of one turn after another.

    Args:
        turns: the voice and the text of each turn.
        speed: how much faster than the voice's own the speech is.
        markup: of the texts, whose tags are no words.
        unit: what is timed of Chinese.

    Raises:
        ApiError: the package is missing that knows Chinese words.
    """

    def __init__(
        self,
        turns: Sequence[tuple[str, str]],
        speed: float,
        markup: str | None,
        unit: WordUnit = "character",
    ) -> None:
        self._voices = [voice for voice, _ in turns]
        self._ends = list(accumulate(len(text) for _, text in turns))
        self._words = HeardWords(WordTimes(speed, PLAIN))
        texts = [blanked(text, markup) for _, text in turns]
        for text, end in zip(texts, self._ends, strict=True):
            self._words.add(text)
            self._words.bar(end)
        self._chinese = _chinese("\n".join(texts)) if unit == "word" else None
        self._is_first = True
        self._leaving: LeavingWords[dict[str, Any]] = LeavingWords()

    async def watch(self, chunks: AsyncGenerator[AudioChunk, None]) -> AsyncGenerator[AudioChunk, None]:
        """Pass on the chunks, and time their words."""
        async with aclosing(chunks):
            async for chunk in chunks:
                self._hear(chunk)
                yield chunk
        self._tell(self._words.finish())
        self._end_word()

    def taken(self, left_s: float) -> list[tuple[str, list[dict[str, Any]]]]:
        """The words that were not taken before and are over when this many seconds of audio have left, each
        with its voice and its seconds, behind the method by which they are timed."""
        return self._leaving.taken(left_s)

    def _hear(self, chunk: AudioChunk) -> None:
        if self._chinese is not None and self._is_first and chunk.start_character:
            self._chinese.begin_at(chunk.start_character)
        self._is_first = False
        self._tell(self._words.hear(chunk))
        if chunk.spoken_characters is None:
            return
        if len(self._voices) == 1:
            self._tell(self._words.end_segment(chunk.spoken_characters))
            return
        self._tell(self._words.end_segment(self._ends.pop(0)))
        self._end_word()
        del self._voices[0]

    def _end_word(self) -> None:
        if self._chinese is not None:
            self._add(self._chinese.finish())

    def _tell(self, words: Iterable[TimedWord]) -> None:
        self._add(words if self._chinese is None else self._chinese.push(words))

    def _add(self, words: Iterable[TimedWord]) -> None:
        for text, start_s, end_s in words:
            times = {"start_s": round(start_s, 3), "end_s": round(end_s, 3)}
            self._leaving.add({"word": text, **times, "voice": self._voices[0]}, end_s, self._words.by)


def _chinese(text: str) -> ChineseWords:
    try:
        return ChineseWords(text)
    except InvalidArgumentError as error:
        raise invalid("word_unit", f"word_unit: {error}.") from None
