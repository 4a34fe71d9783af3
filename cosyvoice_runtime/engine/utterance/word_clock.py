"""When each word of an answer is heard: by the speech LM's attention to the text, or by estimate."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.alignment.estimate import WordTimes
from cosyvoice_runtime.alignment.sound import AudibleFrames
from cosyvoice_runtime.alignment.spoken_text import SpokenWord, matched
from cosyvoice_runtime.alignment.times import SegmentTimes, Spans, WordRows
from cosyvoice_runtime.alignment.words import TimedWord, WordMethod, WordReader
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.engine.utterance.request import AudioChunk


class SegmentWords(NamedTuple):
    """Words of a segment, in order, where the text that is spoken says them.

    Attributes:
        text: that is spoken.
        speed: at which it is.
    """

    words: Sequence[SpokenWord]
    text: str
    speed: float


class VoiceTiming(NamedTuple):
    """The facts about a checkpoint that word times depend on.

    Attributes:
        heads: of the speech LM, which follow the text; None for times by estimate.
        spans: finds the tokens of a text.
        token_s: seconds of a speech token at speed 1.
        sample_rate: samples per second.
    """

    heads: AlignmentHeads | None
    spans: Callable[[str], Spans]
    token_s: float
    sample_rate: int


async def with_words(
    chunks: AsyncGenerator[AudioChunk, None], clock: WordClock
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks, each with the words that are over by its end."""
    async with aclosing(chunks):
        async for chunk in chunks:
            yield dataclasses.replace(chunk, words=clock.hear(chunk), words_by=clock.method)


def words_of(
    text: str, markup: str | None, segments: Sequence[LaidSegment], speed: float
) -> list[SegmentWords]:
    """Words of a text as it was sent, by the segments that are spoken.

    Args:
        speed: of segments without one of their own.
    """
    reader, spoken = WordReader(markup), [segment for segment in segments if segment.prompt]
    found = matched(reader.read(text) + reader.finish(), [segment.text for segment in spoken])
    return [
        SegmentWords(
            [each for each in found if each.segment == number],
            segment.text,
            segment.sound.speed if segment.sound else speed,
        )
        for number, segment in enumerate(spoken)
    ]


class WordClock:
    """Tells the words of an answer, chunk by chunk, and takes none back.

    A segment whose chunks bring rows of attention is timed by these, and any other one by estimate.

    Args:
        segments: all that are spoken.
        speed: of the answer; segments may have their own.

    Attributes:
        method: how the words of the latest chunk are timed.
    """

    def __init__(self, segments: Sequence[SegmentWords], speed: float, timing: VoiceTiming) -> None:
        self.method: WordMethod = "estimate" if timing.heads is None else "attention"
        self._estimated = EstimatedWords(segments, speed, timing.sample_rate)
        self._followed = None if timing.heads is None else FollowedWords(segments, timing.heads, timing)
        self._methods: dict[int, WordMethod] = {}
        self._last_s = 0.0

    def hear(self, chunk: AudioChunk) -> list[TimedWord]:
        """Words that are over by the end of a chunk, in order."""
        words = self._estimated.hear(chunk)
        method = self._methods.get(chunk.segment)
        if method is None and chunk.rows is not None and self._followed is not None:
            method = self._methods[chunk.segment] = "attention"
        if self._followed is not None:
            followed = self._followed.hear(chunk, method == "attention")
            words = followed if method == "attention" else words
        if method is None and (words or chunk.finish_reason is not None):
            method = self._methods[chunk.segment] = "estimate"
        self.method = method or self.method
        return [self._after(word) for word in words]

    def _after(self, word: TimedWord) -> TimedWord:
        """The word, not before the one before."""
        start_s = max(word.start_s, self._last_s)
        self._last_s = max(start_s, word.end_s)
        return TimedWord(word.text, start_s, self._last_s)


class FollowedWords:
    """Words by the attention of the speech LM's heads."""

    def __init__(self, segments: Sequence[SegmentWords], heads: AlignmentHeads, timing: VoiceTiming) -> None:
        self._times = [SegmentTimes(of.words, of.text, timing.spans(of.text), heads) for of in segments]
        self._token_s = [timing.token_s / of.speed for of in segments]
        self._frames = AudibleFrames(timing.sample_rate)
        self._began_s: dict[int, float] = {}
        self._spoken = [0]
        """Tokens of the segment that are spoken before each row, and behind the last one."""
        self._waiting: list[WordRows] = []

    def hear(self, chunk: AudioChunk, is_followed: bool) -> list[TimedWord]:
        """Words that are settled and whose audio is there.

        Args:
            is_followed: whether the rows of the chunk's segment come.
        """
        segment, begins = chunk.segment, is_followed and chunk.segment not in self._began_s
        if begins:
            self._began_s[segment] = self._frames.heard_s
            self._frames.begin()
            self._spoken = [0]
        self._frames.add(chunk.samples)
        if not is_followed or chunk.is_pause:
            return []
        self._began_s[segment] -= chunk.trimmed_s[0]
        if chunk.rows is not None:
            self._spoken += (self._spoken[-1] + np.cumsum(chunk.are_spoken)).tolist()
            self._waiting += self._times[segment].push(chunk.rows)
        ends = chunk.finish_reason is not None
        if ends:
            self._waiting += self._times[segment].finish()
        told = []
        while self._waiting and (ends or self._at(segment, self._waiting[0].end) <= self._frames.heard_s):
            told.append(self._timed(segment, self._waiting.pop(0)))
        return told

    def _timed(self, segment: int, word: WordRows) -> TimedWord:
        places = self._at(segment, word.start), self._at(segment, word.end)
        return TimedWord(
            word.word.text, *(self._frames.narrowed(*places) if word.end > word.start else places)
        )

    def _at(self, segment: int, row: float) -> float:
        """The second at which a row is heard."""
        token = float(np.interp(row, np.arange(len(self._spoken)), self._spoken))
        return max(0.0, self._began_s[segment] + token * self._token_s[segment])


class EstimatedWords:
    """Words by their lengths, for a speech LM whose attention is not seen.

    Args:
        speed: of the answer.
        rate: samples per second.
    """

    def __init__(self, segments: Sequence[SegmentWords], speed: float, rate: int) -> None:
        self._times = WordTimes(speed, rate=rate)
        self._ends: list[int] = []
        end = 0
        for segment in segments:
            # Their places are counted in words: several turns have a text each.
            words = [
                dataclasses.replace(each.word, end=end + number)
                for number, each in enumerate(segment.words, start=1)
            ]
            end += len(words)
            self._ends.append(end)
            self._times.add_words(words)
            self._times.bar(end)

    def hear(self, chunk: AudioChunk) -> list[TimedWord]:
        """Words that are over by now, by the voice's pace so far."""
        told = self._times.hear(chunk.samples)
        if chunk.finish_reason is not None:
            told += self._times.end_segment(self._ends[chunk.segment])
        return told
