"""When each word of an answer is heard: by the speech LM's attention to the text, or by estimate."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.alignment.estimate import WordTimes
from cosyvoice_runtime.alignment.sound import KNOWN_S, AudibleFrames
from cosyvoice_runtime.alignment.spoken_text import SpokenWord
from cosyvoice_runtime.alignment.times import SegmentTimes, Spans, WordRows, between
from cosyvoice_runtime.alignment.words import TimedWord, Word, WordMethod
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.lm.generation import FinishReason


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
    """The chunks, each with the words that are over by its end.

    The first one, which is waited for, is not held up: words that it ends come with the second. Nor are those
    of other answers that have come at the same time: words of a later chunk are found behind them.
    """
    over: list[TimedWord] = []
    is_first = True
    async with aclosing(chunks):
        async for chunk in chunks:
            if is_first and chunk.seconds and not chunk.is_pause and chunk.finish_reason is None:
                yield dataclasses.replace(chunk, words_by=clock.method_of(chunk))
                over = clock.hear(chunk)
            else:
                await asyncio.sleep(0)
                yield dataclasses.replace(chunk, words=[*over, *clock.hear(chunk)], words_by=clock.method)
                over = []
            is_first = is_first and (chunk.is_pause or not chunk.seconds)


class WordClock:
    """Tells the words of an answer, chunk by chunk, and takes none back.

    A segment whose chunks bring rows of attention is timed by these, and any other one by estimate. Text that
    comes in pieces has no rows: its clock has no heads.

    Args:
        speed: of the answer; segments may have their own.
        first_segment: index in the text of the first segment that is spoken.

    Attributes:
        method: how the words of the latest chunk are timed.
    """

    def __init__(self, speed: float, timing: VoiceTiming, first_segment: int = 0) -> None:
        self.method: WordMethod = "estimate" if timing.heads is None else "attention"
        self._estimated = EstimatedWords(speed, timing.sample_rate)
        self._followed = None if timing.heads is None else FollowedWords(speed, timing.heads, timing)
        self._first_segment = first_segment
        self._methods: dict[int, WordMethod] = {}
        self._last_s = 0.0

    def begin(self, segment: LaidSegment) -> None:
        """Take the next segment with its words, before its first chunk comes."""
        self._estimated.add([each.word for each in segment.words])
        self._estimated.end()
        if self._followed is not None:
            self._followed.begin(segment)

    def add(self, words: Sequence[Word]) -> None:
        """Take more words of a segment whose text comes in pieces."""
        self._estimated.add(words)

    def end(self) -> None:
        """End the text of that segment."""
        self._estimated.end()

    def trail(self, words: Sequence[Word]) -> None:
        """Take marks that nothing says, behind the text of the latest segment; nobody hears of them once that
        has been spoken."""
        if self._estimated.trail(words) and self._followed is not None:
            self._followed.trail(words)

    def method_of(self, first: AudioChunk) -> WordMethod:
        """How words of the first sound are timed, which has not been heard yet."""
        method = self._methods.get(first.segment - self._first_segment)
        if method is not None:
            return method
        return "estimate" if first.rows is None or self._followed is None else "attention"

    def hear(self, chunk: AudioChunk) -> list[TimedWord]:
        """Words that are over by the end of a chunk, in order."""
        chunk = dataclasses.replace(chunk, segment=chunk.segment - self._first_segment)
        words = self._estimated.hear(chunk)
        method = self._methods.get(chunk.segment)
        if method is None and chunk.rows is not None and self._followed is not None:
            method = self._methods[chunk.segment] = "attention"
        if self._followed is not None:
            followed = self._followed.hear(chunk, method == "attention")
            words = followed if method == "attention" else words
        if method is None and (words or chunk.finish_reason is not None):
            method = self._methods[chunk.segment] = "estimate"
        if method is None and not self._methods and chunk.rows is None and not chunk.is_pause:
            method = "estimate"  # No rows have come so far, nor will they.
        self.method = method or self.method
        return [self._after(word) for word in words]

    def _after(self, word: TimedWord) -> TimedWord:
        """The word, not before the one before."""
        start_s = max(word.start_s, self._last_s)
        self._last_s = max(start_s, word.end_s)
        return TimedWord(word.text, start_s, self._last_s)


class FollowedWords:
    """Words by the attention of the speech LM's heads.

    Args:
        speed: of the answer; segments may have their own.
    """

    def __init__(self, speed: float, heads: AlignmentHeads, timing: VoiceTiming) -> None:
        self._speed, self._heads, self._timing = speed, heads, timing
        self._segments: list[LaidSegment | None] = []
        """Segments that have not been heard yet, and none in the place of those that have."""
        self._frames = AudibleFrames(timing.sample_rate)
        self._current: int | None = None
        self._times: SegmentTimes | None = None
        self._token_s = self._began_s = 0.0
        self._spoken = [0]
        """Tokens of the segment that are spoken before each row, and behind the last one."""
        self._waiting: list[WordRows] = []

    def begin(self, segment: LaidSegment) -> None:
        """Take the next segment, before its first chunk comes."""
        self._segments.append(segment)

    def trail(self, words: Sequence[Word]) -> None:
        """Take marks that nothing says, behind the latest segment."""
        segment = self._segments[-1]
        if segment is not None:
            end = len(segment.text)
            marks = [SpokenWord(word, 0, end, end) for word in words]
            self._segments[-1] = dataclasses.replace(segment, words=[*segment.words, *marks])
        elif self._times is not None:
            self._times.trail(words)

    def hear(self, chunk: AudioChunk, is_followed: bool) -> list[TimedWord]:
        """Words that are settled and whose audio is there.

        Args:
            is_followed: whether the rows of the chunk's segment come.
        """
        if is_followed and chunk.segment != self._current:
            self._open(chunk.segment)
        self._frames.add(chunk.samples)
        if not is_followed or self._times is None:
            if chunk.finish_reason is not None:
                self._segments[chunk.segment] = None
                self._frames.begin()
            return []
        self._began_s += chunk.earlier_s - chunk.trimmed_s[0]
        if chunk.rows is not None:
            self._spoken += (self._spoken[-1] + np.cumsum(chunk.are_spoken)).tolist()
            self._waiting += self._times.push(chunk.rows)
        ends = chunk.finish_reason is not None
        if ends:
            self._waiting += self._times.finish()
        if chunk.finish_reason is FinishReason.INCOMPLETE and chunk.spoken_characters is not None:
            reached = chunk.spoken_characters
            self._waiting = [word for word in self._waiting if word.word.end <= reached]
        told = []
        while self._waiting and (ends or self._at(self._waiting[0].end) + KNOWN_S <= self._frames.heard_s):
            told.append(self._timed(self._waiting.pop(0)))
        return told

    def _open(self, number: int) -> None:
        """Begin with the rows of a segment."""
        segment, self._segments[number] = self._segments[number], None
        assert segment is not None, "a segment is heard once"
        spans = self._timing.spans(segment.text)
        self._times = SegmentTimes(segment.words, segment.text, spans, self._heads)
        self._token_s = self._timing.token_s / segment.speed(self._speed)
        self._current, self._began_s, self._spoken = number, self._frames.heard_s, [0]
        self._frames.begin()

    def _timed(self, word: WordRows) -> TimedWord:
        places = self._at(word.start), self._at(word.end)
        start_s, end_s = self._frames.narrowed(*places) if word.end > word.start else places
        heard_s = self._frames.heard_s
        return TimedWord(word.word.text, min(start_s, heard_s), min(end_s, heard_s))

    def _at(self, row: float) -> float:
        """The second at which a row is heard."""
        return max(0.0, self._began_s + between(self._spoken, row) * self._token_s)


class EstimatedWords:
    """Words by their lengths, for a speech LM whose attention is not seen.

    Places in the text are counted in words: several turns have a text each.

    Args:
        speed: of the answer.
        rate: samples per second.
    """

    def __init__(self, speed: float, rate: int) -> None:
        self._times = WordTimes(speed, rate=rate)
        self._count = 0
        self._ends: list[int] = []
        self._spoken = 0
        """Segments that have been spoken to their ends."""
        self._told = 0

    def add(self, words: Sequence[Word]) -> None:
        """Take more words of the segment that comes next, or is spoken."""
        for word in words:
            self._count += 1
            self._times.add_words([dataclasses.replace(word, end=self._count)])

    def end(self) -> None:
        """End that segment."""
        self._ends.append(self._count)
        self._times.bar(self._count)

    def trail(self, words: Sequence[Word]) -> bool:
        """Take marks behind the latest segment; returns whether it has still to be spoken to its end."""
        if self._spoken == len(self._ends):
            return False
        self.add(words)
        self._ends.pop()
        self.end()
        return True

    def hear(self, chunk: AudioChunk) -> list[TimedWord]:
        """Words that are over by now, by the voice's pace so far."""
        # A segment whose text comes in pieces may be over before its text is.
        [end] = self._ends[chunk.segment : chunk.segment + 1] or [self._count]
        is_silence = chunk.is_pause or 0 < chunk.seconds == chunk.earlier_s
        if is_silence or self._told == end:
            self._times.pass_by(chunk.samples)
            told = []
        else:
            told = self._times.hear(chunk.samples)
        if chunk.finish_reason is not None:
            told += self._times.end_segment(end)
            self._spoken = chunk.segment + 1
        self._told += len(told)
        return told
