"""Words of a text that arrives in pieces, for the clock that tells when each is heard, and for checks."""

from __future__ import annotations

from collections import deque

from cosyvoice_runtime.alignment.spoken_text import matched
from cosyvoice_runtime.alignment.words import Word, WordReader
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.engine.utterance.verification import Checks
from cosyvoice_runtime.engine.utterance.word_clock import SegmentWords, VoiceTiming, WordClock


class ArrivingWords:
    """Gives a clock the words of each clause when it is laid out.

    Args:
        clock: tells the words; None where nobody asks.
        markup: of the text.
        speed: of clauses without one of their own.
        timing: finds the tokens of a clause.
        checks: take each clause that is a segment, before that is spoken; None where nobody asks.
    """

    def __init__(
        self,
        clock: WordClock | None,
        markup: str | None,
        speed: float,
        timing: VoiceTiming,
        checks: Checks | None = None,
    ) -> None:
        self.clock = clock
        self._timing, self._checks = timing, checks
        self._reader = WordReader(markup)
        self._speed = speed
        self._words: deque[Word] = deque()

    def push(self, text: str) -> None:
        """Take more of the text, before its clauses."""
        self._words += self._reader.read(text)

    def segment(self, laid: LaidSegment, characters: int) -> None:
        """A clause is a segment of its own, which ends after so many characters of the text."""
        words = matched(self._up_to(characters), [laid.text])
        speed = laid.sound.speed if laid.sound else self._speed
        segment = SegmentWords(words, laid.text, speed)
        if self.clock is not None:
            self.clock.begin(segment)
        if self._checks is not None:
            self._checks.add(segment, self._timing)

    def extend(self, characters: int) -> None:
        """A clause belongs to a segment that others may extend."""
        if self.clock is not None:
            self.clock.add(self._up_to(characters))

    def end(self) -> None:
        """That segment ends."""
        if self.clock is not None:
            self.clock.end()

    def trail(self, characters: int) -> None:
        """Silent marks follow the latest clause, up to so many characters."""
        words = self._up_to(characters)
        if words and self.clock is not None:
            self.clock.trail(words)

    def _up_to(self, characters: int) -> list[Word]:
        """Words that end by there; one at the end of all text so far is whole if a clause ends with it."""
        if self._reader.end <= characters:
            self._words += self._reader.break_off()
        words = []
        while self._words and self._words[0].end <= characters:
            words.append(self._words.popleft())
        return words
