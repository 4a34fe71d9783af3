"""Where everything in a spoken book is heard: its passages, the silences between them, its chapters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from cosyvoice_runtime.book.chapters import Gap, Passage

PARAGRAPH_PAUSE_S = 0.7
"""Seconds of silence between paragraphs: longer than the 0.5 s at which a caption ends."""
CHAPTER_PAUSE_S = 1.5
"""Seconds of silence before a chapter: the least that ACX asks for at two files' ends, 1 s behind a chapter
and 0.5 s before the next one ("ACX audio submission requirements", room tone)."""
LONGEST_PAUSE_S = 10.0


class Pauses(NamedTuple):
    """Seconds of silence between paragraphs and before chapters."""

    paragraph_s: float = PARAGRAPH_PAUSE_S
    chapter_s: float = CHAPTER_PAUSE_S


class ChapterMark(NamedTuple):
    """A chapter in a recording; places are samples from its beginning."""

    title: str
    start: int
    end: int


class BookTimeline(NamedTuple):
    """Places in a recording, in samples.

    Attributes:
        silences: samples of silence before each passage.
        starts: of each passage.
        chapters: those of which anything is spoken.
    """

    silences: list[int]
    starts: list[int]
    chapters: list[ChapterMark]


def timeline_of(
    passages: Sequence[Passage], lengths: Sequence[int], titles: Sequence[str], rate: int, pauses: Pauses
) -> BookTimeline:
    """Lay out a recording.

    Args:
        lengths: samples of each passage.
        titles: of each chapter.
        rate: samples per second.
    """
    seconds = {Gap.NONE: 0.0, Gap.PARAGRAPH: pauses.paragraph_s, Gap.CHAPTER: pauses.chapter_s}
    silences = [round(seconds[passage.gap] * rate) for passage in passages]
    silences[0] = 0
    starts, end = list[int](), 0
    for silence, length in zip(silences, lengths, strict=True):
        starts.append(end + silence)
        end = starts[-1] + length
    numbers = [number for number, _ in groupby(passage.chapter for passage in passages)]
    firsts = [next(at for at, each in enumerate(passages) if each.chapter == number) for number in numbers]
    begins = [starts[first] for first in firsts]
    ends = [*begins[1:], end]
    marks = zip(numbers, begins, ends, strict=True)
    return BookTimeline(
        silences, starts, [ChapterMark(titles[number], start, end) for number, start, end in marks]
    )
