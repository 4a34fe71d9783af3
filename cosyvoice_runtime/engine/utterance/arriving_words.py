"""Words of a text that arrives in pieces, for what tells when each is heard, or checks it."""

from __future__ import annotations

import dataclasses
from collections import deque

from cosyvoice_runtime.alignment.spoken_text import matched
from cosyvoice_runtime.alignment.words import Word, WordReader
from cosyvoice_runtime.engine.utterance.followed import FollowedSpeech
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.lm.text_segment import CheckedText


class ArrivingWords:
    """Finds the words of each clause when it is laid out.

    Args:
        followed: takes them.
        markup: of the text.
    """

    def __init__(self, followed: FollowedSpeech, markup: str | None) -> None:
        self._followed, self._clock = followed, followed.clock
        self._reader = WordReader(markup)
        self._words: deque[Word] = deque()
        self._begins = 0

    def push(self, text: str) -> None:
        """Take more of the text, before its clauses."""
        self._words += self._reader.read(text)

    def segment(self, laid: LaidSegment, characters: int) -> CheckedText | None:
        """Take a clause that is a segment of its own and ends after so many characters of the text.

        Returns:
            what its driver is to check, if anything.
        """
        words = matched(self._up_to(characters), [laid.text])
        begins, self._begins = self._begins, characters
        return self._followed.begin(dataclasses.replace(laid, words=words, begins=begins))

    def extend(self, characters: int) -> None:
        """A clause belongs to a segment that others may extend."""
        words = self._up_to(characters)
        if self._clock is not None:
            self._clock.add(words)

    def end(self) -> None:
        """That segment ends."""
        if self._clock is not None:
            self._clock.end()

    def trail(self, characters: int) -> None:
        """Silent marks follow the latest clause, up to so many characters."""
        words = self._up_to(characters)
        if words and self._clock is not None:
            self._clock.trail(words)

    def _up_to(self, characters: int) -> list[Word]:
        """Words that end by there; one at the end of all text so far is whole if a clause ends with it."""
        if self._reader.end <= characters:
            self._words += self._reader.break_off()
        words = []
        while self._words and self._words[0].end <= characters:
            words.append(self._words.popleft())
        return words
