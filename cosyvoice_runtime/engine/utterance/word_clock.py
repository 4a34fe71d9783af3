"""When each word of an answer is heard: by the speech LM's attention to the text, or by estimate."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.alignment.estimate import WordTimes
from cosyvoice_runtime.alignment.sound import AudibleFrames
from cosyvoice_runtime.alignment.spoken_text import SpokenWord, matched
from cosyvoice_runtime.alignment.times import SegmentTimes, Spans, WordRows, between
from cosyvoice_runtime.alignment.words import TimedWord, Word, WordMethod, WordReader
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.engine.utterance.request import AudioChunk, SpeechRequest
from cosyvoice_runtime.text import Segment

WINDOW, LOOK_AHEAD = 8, 2
"""Segments whose words are found together, and those behind them that are looked at, too: the time to find
them grows with the square of their number."""


class SegmentWords(NamedTuple):
    """Words of a segment, in order, where the text that is spoken says them.

    Attributes:
        text: that is spoken.
        speed: at which it is.
        turn: whose segment it is, from 0 on; None of a text. The places of words are counted in the texts of
            all turns, one behind another.
    """

    words: Sequence[SpokenWord]
    text: str
    speed: float
    turn: int | None = None


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
    request: SpeechRequest,
    markup: str | None,
    segments: Sequence[LaidSegment],
    before: Sequence[Segment] = (),
) -> Iterator[SegmentWords]:
    """Words of a request's text, or of its turns, as they were sent, by the segments of the text.

    Args:
        segments: all that are spoken.
        before: the segments of the text before these, which are not spoken: nothing is told of them.
    """
    spoken = [segment for segment in segments if segment.prompt is not None]
    if not request.turns:
        whole: list[Segment | LaidSegment] = [*before, *spoken]
        ends, texts = [each.characters or 0 for each in whole], [each.text for each in whole]
        found = _found(_words(request.text, markup), texts, ends)
        yield from [SegmentWords([], "", request.speed)] * len(before)
        yield from _by_segment(found, spoken, request.speed, len(before))
        return
    turn, begin, of_turn = 0, 0, []
    for segment in spoken:
        of_turn.append(segment)
        if segment.characters is not None:  # The turn ends with it.
            sent = _words(request.turns[turn].text, markup)
            words = [dataclasses.replace(word, end=begin + word.end) for word in sent]
            said = _by_segment(matched(words, [each.text for each in of_turn]), of_turn, request.speed)
            yield from (each._replace(turn=turn) for each in said)
            turn, begin, of_turn = turn + 1, segment.characters, []


def _words(text: str, markup: str | None) -> list[Word]:
    reader = WordReader(markup)
    return reader.read(text) + reader.finish()


def _found(words: Sequence[Word], texts: Sequence[str], ends: Sequence[int]) -> Iterator[SpokenWord]:
    """The words in the texts of segments, as `matched` finds them, of a long text window by window.

    Args:
        ends: characters of the text up to the end of each segment, about.
    """
    first = 0
    while (stop := first + WINDOW + LOOK_AHEAD) < len(texts):
        near = words[: bisect_right(words, ends[stop - 1], key=lambda word: word.end)]
        found = [each for each in matched(near, texts[first:stop]) if each.segment < WINDOW]
        yield from (each._replace(segment=first + each.segment) for each in found)
        first, words = first + WINDOW, words[len(found) :]
    yield from (each._replace(segment=first + each.segment) for each in matched(words, texts[first:]))


def _by_segment(
    found: Iterable[SpokenWord], segments: Sequence[LaidSegment], speed: float, first: int = 0
) -> Iterator[SegmentWords]:
    words: dict[int, list[SpokenWord]] = {}
    for each in found:
        words.setdefault(each.segment, []).append(each)
    for number, segment in enumerate(segments, first):
        own_speed = segment.sound.speed if segment.sound else speed
        yield SegmentWords(words.get(number, []), segment.text, own_speed)


class WordClock:
    """Tells the words of an answer, chunk by chunk, and takes none back.

    A segment whose chunks bring rows of attention is timed by these, and any other one by estimate. Text that
    comes in pieces has no rows: its clock has no heads.

    Args:
        speed: of the answer; segments may have their own.

    Attributes:
        method: how the words of the latest chunk are timed.
    """

    def __init__(self, speed: float, timing: VoiceTiming) -> None:
        self.method: WordMethod = "estimate" if timing.heads is None else "attention"
        self._estimated = EstimatedWords(speed, timing.sample_rate)
        self._followed = None if timing.heads is None else FollowedWords(timing.heads, timing)
        self._methods: dict[int, WordMethod] = {}
        self._last_s = 0.0

    @classmethod
    def of(cls, segments: Sequence[SegmentWords], speed: float, timing: VoiceTiming) -> WordClock:
        """The clock of segments that are all there."""
        clock = cls(speed, timing)
        for segment in segments:
            clock.begin(segment)
        return clock

    def begin(self, segment: SegmentWords) -> None:
        """Take the next segment, before its first chunk comes."""
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
    """Words by the attention of the speech LM's heads."""

    def __init__(self, heads: AlignmentHeads, timing: VoiceTiming) -> None:
        self._heads, self._timing = heads, timing
        self._segments: list[tuple[SegmentTimes, float]] = []
        """Times of each, and seconds of its tokens."""
        self._frames = AudibleFrames(timing.sample_rate)
        self._current: int | None = None
        self._began_s = 0.0
        self._spoken = [0]
        """Tokens of the segment that are spoken before each row, and behind the last one."""
        self._waiting: list[WordRows] = []

    def begin(self, segment: SegmentWords) -> None:
        """Take the next segment, before its first chunk comes."""
        spans = self._timing.spans(segment.text)
        times = SegmentTimes(segment.words, segment.text, spans, self._heads)
        self._segments.append((times, self._timing.token_s / segment.speed))

    def trail(self, words: Sequence[Word]) -> None:
        """Take marks that nothing says, behind the latest segment."""
        self._segments[-1][0].trail(words)

    def hear(self, chunk: AudioChunk, is_followed: bool) -> list[TimedWord]:
        """Words that are settled and whose audio is there.

        Args:
            is_followed: whether the rows of the chunk's segment come.
        """
        if is_followed and chunk.segment != self._current:
            self._current, self._began_s, self._spoken = chunk.segment, self._frames.heard_s, [0]
            self._frames.begin()
        self._frames.add(chunk.samples)
        if not is_followed:
            return []
        self._began_s -= chunk.trimmed_s[0]
        times, token_s = self._segments[chunk.segment]
        if chunk.rows is not None:
            self._spoken += (self._spoken[-1] + np.cumsum(chunk.are_spoken)).tolist()
            self._waiting += times.push(chunk.rows)
        ends = chunk.finish_reason is not None
        if ends:
            self._waiting += times.finish()
        told = []
        while self._waiting and (ends or self._at(self._waiting[0].end, token_s) <= self._frames.heard_s):
            told.append(self._timed(self._waiting.pop(0), token_s))
        return told

    def _timed(self, word: WordRows, token_s: float) -> TimedWord:
        places = self._at(word.start, token_s), self._at(word.end, token_s)
        narrowed = self._frames.narrowed(*places) if word.end > word.start else places
        return TimedWord(word.word.text, *narrowed)

    def _at(self, row: float, token_s: float) -> float:
        """The second at which a row is heard."""
        return max(0.0, self._began_s + between(self._spoken, row) * token_s)


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
        told = self._times.hear(chunk.samples)
        if chunk.finish_reason is not None:
            # A segment whose text comes in pieces may be over before its text is.
            ends = self._ends[chunk.segment : chunk.segment + 1] or [self._count]
            told += self._times.end_segment(ends[0])
            self._spoken = chunk.segment + 1
        return told
