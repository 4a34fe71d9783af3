"""Splitting of text that arrives over time, as from a language model whose answer is spoken."""

from __future__ import annotations

import re
from collections.abc import Callable

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.language_names import AUTO
from cosyvoice_runtime.speakable import is_speakable
from cosyvoice_runtime.text.normalise import Normaliser
from cosyvoice_runtime.text.polyphones import Pronounced, as_it_is
from cosyvoice_runtime.text.split import (
    Count,
    Grouping,
    SplitLimits,
    SplitStyle,
    bounded,
    complete,
    sentences,
)
from cosyvoice_runtime.text.validate import MAX_TARGET_CHARACTERS, require_characters

EAGER = SplitLimits(maximum=0, minimum=10, merge=0)
"""Limits for a quick start: a segment leaves at the first sentence end after ten tokens or characters."""

Rules = Callable[[str], tuple[SplitStyle, Count]]
"""Language to its marks and its unit of length."""

# A mark, the quote it closes, spaces, the first character of a word: what is before is settled.
_SENTENCE_END = re.compile(r"([。？！；：、.?!;:])(?:[\"”]|(?![\"”]))(\s*)(?=([^\W_]|[“\"'\[<(（]))")


def sentence_end(text: str, style_up_to: Callable[[int], SplitStyle]) -> int:
    """Length of the first sentence that is complete whatever follows; 0 if none is yet.

    Args:
        style_up_to: how the first characters are split, by their number.
    """
    for match in _SENTENCE_END.finditer(text):
        mark, spaces, following = match.groups()
        is_clear = spaces or not mark.isascii() or not following.isascii()
        if is_clear and style_up_to(match.end()).ends_sentence(text, match.start()):
            return match.end()
    return 0


class SegmentStream:
    """Takes text as it comes, gives segments as soon as later text can't change them.

    All segments together equal :meth:`TextFrontEnd.segments` of the whole text with the same limits, except
    where the whole text would have changed an early decision:

    - the language with ``auto`` is that of the text so far: a Chinese word later on doesn't reach back;
    - ``<|...|>`` switches normalisation off up to the next sentence end only, and not the splitting;
    - a sentence longer than ``limits.hard`` is cut before its end is known and before it is normalised.

    Args:
        rules: marks and unit of length for a language.
        limits: upstream's wait for about 80 tokens per segment, :data:`EAGER` for a sentence.
        pronounced: what becomes of a segment in a language when it leaves.
    """

    def __init__(
        self,
        normaliser: Normaliser,
        rules: Rules,
        limits: SplitLimits,
        language: str = AUTO,
        pronounced: Pronounced = as_it_is,
    ) -> None:
        self._normaliser = normaliser
        self._rules = rules
        self._limits = limits
        self._asked_language = language
        self._pronounced = pronounced
        self._grouping = Grouping(limits, len, normaliser.special)
        self._taken = ""
        self._raw = ""
        self._spaces = ""
        self._has_spoken = False

    def push(self, text: str) -> list[str]:
        """Take more text; return the segments that are final now.

        Raises:
            InvalidInput: ``target_text`` is malformed, or too long by now.
        """
        received = len(self._taken) + len(self._raw)
        require_characters("target_text", text, MAX_TARGET_CHARACTERS, before=received)
        self._raw += text if received else text.lstrip()
        segments: list[str] = []
        while cut := self._sentence_end() or self._forced_cut():
            segments += self._take(cut, last=False)
        return self._speakable(segments)

    def end(self) -> list[str]:
        """No more text: return the rest.

        Raises:
            InvalidInput: nothing in all of the text can be spoken.
        """
        segments = self._take(len(self._raw.rstrip()), last=True) + self._grouping.finish()
        segments = self._speakable(segments)
        if not self._has_spoken:
            raise InvalidInput("target_text", self._taken, "it must hold something to speak")
        return segments

    def _take(self, cut: int, last: bool) -> list[str]:
        """Normalise and group the first ``cut`` characters of what is left."""
        language = self._language(cut)
        part, self._raw = self._raw[:cut], self._raw[cut:]
        self._taken += part
        style, self._grouping.count = self._rules(language)
        text = self._spaces + self._normaliser.part(part, language, following=self._raw[:1])
        if last:
            text = complete(self._normaliser.ending(text, language), style)
        parts = list(sentences(text, style))
        # Spaces after the last mark open the next sentence.
        self._spaces = parts.pop() if parts and parts[-1].isspace() else ""
        return [segment for part in parts for segment in self._grouping.add(part)]

    def _sentence_end(self) -> int:
        return sentence_end(self._raw, lambda cut: self._rules(self._language(cut))[0])

    def _forced_cut(self) -> int:
        """Where to cut a sentence that is too long already; 0 if it isn't."""
        _, count = self._rules(self._language(len(self._raw)))
        if self._limits.hard is None or count(self._raw) <= self._limits.hard:
            return 0
        return len(next(bounded(self._raw, self._limits.hard, count, self._normaliser.special)))

    def _language(self, cut: int) -> str:
        """Language of the text up to ``cut`` characters from here."""
        return self._normaliser.language(self._taken + self._raw[:cut], self._asked_language)

    def _speakable(self, segments: list[str]) -> list[str]:
        segments = list(filter(is_speakable, segments))
        self._has_spoken = self._has_spoken or bool(segments)
        language = self._language(0)
        return [self._pronounced(segment, language) for segment in segments]
