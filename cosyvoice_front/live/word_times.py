"""When each word is heard: an estimate, as the speech itself doesn't say it.

A segment's time is shared out among its words by their length. While a segment is being spoken its length is
not known yet; words are then placed by the voice's pace so far. Where a segment ends, the audio's true
length corrects what is left of it. What has been told is never taken back.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from cosyvoice_front.live.words import Word, WordReader

PACE = 15.0
"""Letters a second of the first words, before a segment has ended: usual for English at speed 1."""
TRUSTED_S = 1.0
"""Weight of that pace against the segments that have ended, in seconds of speech."""
EDGE_S = 0.15
"""Silence at either end of a segment. This and the pace are about those of the demo voice's teacher."""


class TimedWord(NamedTuple):
    """Seconds count from the first sample."""

    text: str
    start_s: float
    end_s: float


class WordTimes:
    """Places the words of one stream of speech.

    Args:
        speed: how much faster than the voice's own the speech is.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self._reader = WordReader()
        self._words: deque[Word] = deque()
        self._bars: deque[int] = deque()
        self._heard_s = 0.0
        self._told_s = EDGE_S
        self._segment_s = 0.0
        self._units = 0.0
        self._spoken_units = PACE * speed * TRUSTED_S
        self._spoken_s = TRUSTED_S

    def add(self, text: str) -> None:
        """More of the text."""
        self._words += self._reader.read(text)

    def bar(self, position: int) -> None:
        """What follows this many characters is another segment than what stands before; a word ends here."""
        self._words += self._reader.finish()
        self._bars.append(position)

    def hear(self, seconds: float) -> list[TimedWord]:
        """Words that are over by now, after this much more audio. A segment's last word is not among them."""
        self._heard_s += seconds
        told = []
        while self._continues():
            end_s = self._told_s + self._words[0].units / self._pace
            if end_s > self._heard_s:
                break
            told.append(self._tell(end_s, self._pace))
        return told

    def end_segment(self, position: int) -> list[TimedWord]:
        """The words that are left up to this many characters: what has been heard by now ends with them."""
        if not self._words or self._words[-1].end < position:
            self._words += self._reader.finish()
        while self._bars and self._bars[0] <= position:
            self._bars.popleft()
        told = self._spread([word for word in self._words if word.end <= position])
        self._learn()
        return told

    def finish(self) -> list[TimedWord]:
        """What is left of the text, when no more audio comes."""
        self._words += self._reader.finish()
        return self._spread(list(self._words))

    @property
    def _pace(self) -> float:
        return self._spoken_units / self._spoken_s

    def _continues(self) -> bool:
        """Whether the next word is followed by another one of its segment."""
        return len(self._words) > 1 and not (self._bars and self._words[1].end > self._bars[0])

    def _spread(self, words: list[Word]) -> list[TimedWord]:
        """Share the time that has not been told among the words."""
        if not words:
            return []
        self._told_s = min(self._told_s, self._heard_s)
        end_s = max(self._told_s, self._heard_s - EDGE_S)
        units = sum(word.units + word.pause for word in words) - words[-1].pause
        pace = units / (end_s - self._told_s) if end_s > self._told_s and units > 0 else float("inf")
        return [self._tell(min(self._told_s + word.units / pace, end_s), pace) for word in words]

    def _tell(self, end_s: float, pace: float) -> TimedWord:
        word = self._words.popleft()
        start_s = min(self._told_s, end_s)
        self._told_s = end_s + word.pause / pace
        self._units += word.units + word.pause
        return TimedWord(word.text, start_s, end_s)

    def _learn(self) -> None:
        """Take the pace of the segment that has ended into account."""
        self._spoken_units += self._units
        self._spoken_s += max(0.0, self._heard_s - self._segment_s - 2 * EDGE_S)
        self._segment_s = self._heard_s
        self._told_s = self._heard_s + EDGE_S
        self._units = 0.0
