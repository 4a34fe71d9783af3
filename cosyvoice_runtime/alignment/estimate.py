"""When each word is heard: an estimate, as the speech itself doesn't say it.

The sound of a segment, silences left out, is shared out among its words by their length. While a segment is
being spoken its length is not known yet; words are then placed by the voice's pace so far. Where a segment
ends, what is left of its words gets what is left of its sound. What has been told is never taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from cosyvoice_runtime.alignment.sound import AudibleFrames
from cosyvoice_runtime.alignment.words import TimedWord, Word, WordReader
from cosyvoice_runtime.arrays import Floats

PACE = 17.0
"""Letters a second of sound of the first words, before a segment has ended: that of the demo voice's teacher,
flite's slt, at speed 1."""
LAST_UNITS = 2.5
"""By how many letters a segment's last word is longer than elsewhere, as speakers slow down there."""
TRUSTED_S = 1.0
"""Weight of that pace against the segments that have ended, in seconds of sound."""


class WordTimes:
    """Places the words of one stream of speech.

    Args:
        speed: how much faster than the voice's own the speech is.
        markup: of the text, whose tags are no words.
        rate: samples per second.
    """

    def __init__(self, speed: float = 1.0, markup: str | None = None, rate: int = 24_000) -> None:
        self._reader = WordReader(markup)
        self._words: deque[Word] = deque()
        self._bars: deque[int] = deque()
        self._sound = AudibleFrames(rate)
        self._told_s = 0.0
        """Share of the segment's sound that the told words take."""
        self._units = 0.0
        self._spoken_units = PACE * speed * TRUSTED_S
        self._spoken_s = TRUSTED_S

    def add(self, text: str) -> None:
        """More of the text."""
        self._words += self._reader.read(text)

    def add_words(self, words: Iterable[Word]) -> None:
        """More of the text, cut into words; whatever their ends count, positions count it, too."""
        self._words += words

    def bar(self, position: int) -> None:
        """A segment ends after this many characters, and a word with it."""
        self._words += self._reader.break_off()
        if (self._bars[-1] if self._bars else 0) < position:
            self._bars.append(position)

    def cut(self, position: int) -> None:
        """Nothing behind this many characters is spoken."""
        words = [*self._words, *self._reader.finish()]
        self._words = deque(word for word in words if word.end <= position)

    def hear(self, samples: Floats) -> list[TimedWord]:
        """Words that are over by now, after this much more audio. A segment's last word is not among them."""
        self._sound.add(samples)
        told = []
        while self._continues():
            end_s = self._told_s + self._words[0].units / self._pace
            if end_s > self._sound.seconds:
                break
            told.append(self._tell(end_s))
        return told

    def pass_by(self, samples: Floats) -> None:
        """Take audio that says no words."""
        self._sound.add(samples)

    def end_segment(self, position: int) -> list[TimedWord]:
        """The words that are left up to this many characters: what has been heard by now ends with them."""
        if not self._words or self._words[-1].end < position:
            self._words += self._reader.break_off()
        while self._bars and self._bars[0] <= position:
            self._bars.popleft()
        told = self._spread([word for word in self._words if word.end <= position])
        self._learn()
        return told

    def finish(self) -> list[TimedWord]:
        """The words left of the text, when no more audio comes."""
        self._words += self._reader.finish()
        return self._spread(list(self._words))

    @property
    def _pace(self) -> float:
        return self._spoken_units / self._spoken_s

    def _continues(self) -> bool:
        """Whether the next word is followed by another one of its segment."""
        return len(self._words) > 1 and not (self._bars and self._words[1].end > self._bars[0])

    def _spread(self, words: list[Word]) -> list[TimedWord]:
        """Share the sound that no word has got yet among the words."""
        left_s = self._sound.seconds - self._told_s
        units = sum(word.units for word in words) + LAST_UNITS
        told = [self._tell(self._told_s + left_s * word.units / units) for word in words[:-1]]
        return told + [self._tell(self._sound.seconds) for _ in words[-1:]]

    def _tell(self, end_s: float) -> TimedWord:
        """Tell the first word, which ends at this second of the segment's sound."""
        word = self._words.popleft()
        start_s, self._told_s = self._told_s, min(end_s, self._sound.seconds)
        self._units += word.units
        return TimedWord(word.text, *self._sound.between(start_s, self._told_s))

    def _learn(self) -> None:
        """Take the pace of the segment that has ended into account."""
        self._spoken_units += self._units
        self._spoken_s += self._sound.seconds
        self._sound.begin()
        self._told_s = self._units = 0.0
