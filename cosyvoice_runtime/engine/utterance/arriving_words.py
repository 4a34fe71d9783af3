"""Words of a text that arrives in pieces, for the clock that tells when each is heard."""

from __future__ import annotations

import dataclasses
from collections import deque

from cosyvoice_runtime.alignment.spoken_text import matched
from cosyvoice_runtime.alignment.words import Word, WordReader
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.engine.utterance.word_clock import WordClock


class ArrivingWords:
    """Gives a clock the words of each clause when it is laid out.

    Args:
        markup: of the text.
    """

    def __init__(self, clock: WordClock, markup: str | None) -> None:
        self.clock = clock
        self._reader = WordReader(markup)
        self._words: deque[Word] = deque()

    def push(self, text: str) -> None:
        """Take more of the text, before its clauses."""
        self._words += self._reader.read(text)

    def segment(self, laid: LaidSegment, characters: int) -> None:
        """A clause is a segment of its own, which ends after so many characters of the text."""
        words = matched(self._up_to(characters), [laid.text])
        self.clock.begin(dataclasses.replace(laid, words=words))

    def extend(self, characters: int) -> None:
        """A clause belongs to a segment that others may extend."""
        self.clock.add(self._up_to(characters))

    def end(self) -> None:
        """That segment ends."""
        self.clock.end()

    def trail(self, characters: int) -> None:
        """Silent marks follow the latest clause, up to so many characters."""
        if words := self._up_to(characters):
            self.clock.trail(words)

    def _up_to(self, characters: int) -> list[Word]:
        """Words that end by there; one at the end of all text so far is whole if a clause ends with it."""
        if self._reader.end <= characters:
            self._words += self._reader.break_off()
        words = []
        while self._words and self._words[0].end <= characters:
            words.append(self._words.popleft())
        return words
