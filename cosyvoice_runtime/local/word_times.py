"""Times of words in the chunks of an utterance: by the speech LM's attention, or by estimate."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal, Protocol

import numpy as np

from cosyvoice_runtime.alignment.estimate import WordTimes
from cosyvoice_runtime.alignment.heads import AlignmentHeads
from cosyvoice_runtime.alignment.sound import AudibleFrames
from cosyvoice_runtime.alignment.spoken_text import SpokenWord, matched
from cosyvoice_runtime.alignment.times import SegmentTimes, Spans, WordRows
from cosyvoice_runtime.alignment.words import TimedWord, WordReader
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.local.attention_rows import AttentionRows

WordMethod = Literal["attention", "estimate"]


class WordClock(Protocol):
    """Tells the words of an utterance, chunk by chunk."""

    def hear(self, chunk: AudioChunk) -> list[TimedWord]:
        """Words that are over by the end of a chunk, in order."""


async def with_words(
    chunks: AsyncGenerator[AudioChunk, None], clock: WordClock
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks, each with the words that are over by its end."""
    async with aclosing(chunks):
        async for chunk in chunks:
            yield dataclasses.replace(chunk, words=clock.hear(chunk))


def words_of(text: str, markup: str | None, segments: Sequence[LaidSegment]) -> list[list[SpokenWord]]:
    """Words of a text as it was sent, by the segments that are spoken."""
    reader, texts = WordReader(markup), [segment.text for segment in segments if segment.prompt]
    found = matched(reader.read(text) + reader.finish(), texts)
    return [[each for each in found if each.segment == number] for number in range(len(texts))]


class FollowedWords:
    """Words by the attention of the speech LM's heads.

    Args:
        words: of each segment.
        segments: those that are spoken.
        token_s: seconds of a speech token at speed 1.
        speed: of segments without one of their own.
        spans: finds the tokens of a text.
        rate: samples per second.
    """

    def __init__(
        self,
        lm: Any,
        heads: AlignmentHeads,
        words: Sequence[Sequence[SpokenWord]],
        segments: Sequence[LaidSegment],
        token_s: float,
        speed: float,
        spans: Callable[[str], Spans],
        rate: int,
    ) -> None:
        self._lm, self._heads = lm, heads
        self._times = [
            SegmentTimes(of, segment.text, spans(segment.text), heads)
            for of, segment in zip(words, segments, strict=True)
        ]
        self._token_s = [token_s / (segment.sound.speed if segment.sound else speed) for segment in segments]
        self._rows: list[AttentionRows] = []
        self._frames = AudibleFrames(rate)
        self._began_s: dict[int, float] = {}
        self._waiting: list[WordRows] = []
        self._last_s = 0.0

    def follow(self, prompt: Prompt) -> AttentionRows:
        """The rows of the next segment."""
        self._rows.append(AttentionRows(self._lm, self._heads, prompt))
        return self._rows[-1]

    def hear(self, chunk: AudioChunk) -> list[TimedWord]:
        """Words that are settled and whose audio is there."""
        segment = chunk.segment
        if not chunk.is_pause and segment < len(self._times) and segment not in self._began_s:
            self._began_s[segment] = self._frames.heard_s
            self._frames.begin()
        self._frames.add(chunk.samples)
        if segment not in self._began_s or chunk.is_pause:
            return []
        self._began_s[segment] -= chunk.trimmed_s[0]
        self._waiting += self._times[segment].push(self._rows[segment].take())
        ends = chunk.finish_reason is not None
        if ends:
            self._waiting += self._times[segment].finish()
        told = []
        while self._waiting and (ends or self._at(segment, self._waiting[0].end) <= self._frames.heard_s):
            told.append(self._timed(segment, self._waiting.pop(0)))
        return told

    def _timed(self, segment: int, word: WordRows) -> TimedWord:
        places = self._at(segment, word.start), self._at(segment, word.end)
        start_s, end_s = self._frames.narrowed(*places) if word.end > word.start else places
        start_s = max(start_s, self._last_s)
        self._last_s = max(start_s, end_s)
        return TimedWord(word.word.text, start_s, self._last_s)

    def _at(self, segment: int, row: float) -> float:
        """The second at which a row is heard."""
        spoken = self._rows[segment].spoken
        token = float(np.interp(row, np.arange(len(spoken)), spoken))
        return max(0.0, self._began_s[segment] + token * self._token_s[segment])


class EstimatedWords:
    """Words by their lengths, for a speech LM whose attention is not seen.

    Args:
        text: as it was sent.
        words: of each segment.
    """

    def __init__(
        self, text: str, markup: str | None, words: Sequence[Sequence[SpokenWord]], speed: float, rate: int
    ) -> None:
        self._times = WordTimes(speed, markup, rate)
        self._times.add(text)
        self._ends: list[int] = []
        for of in words:
            end = of[-1].word.end if of else self._ends[-1] if self._ends else 0
            self._ends.append(end)
            self._times.bar(end)

    def hear(self, chunk: AudioChunk) -> list[TimedWord]:
        """Words that are over by now, by the voice's pace so far."""
        told = self._times.hear(chunk.samples)
        if chunk.finish_reason is not None:
            told += self._times.end_segment(self._ends[chunk.segment])
        return told
