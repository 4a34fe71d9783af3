"""Words of Chinese, which has no spaces: its characters are timed one by one, and joined here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Literal

from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_client.words import TimedWord

WordUnit = Literal["character", "word"]
"""The parts of a Chinese text that are timed."""
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_KANA = "\u3040-\u30ff"
_CHINESE = re.compile(rf"(?<![{_KANA}{_HAN}])[{_HAN}]+(?![{_KANA}{_HAN}])")
"""Characters in a row. Those beside kana are Japanese, which jieba's dictionary does not know."""


class ChineseWords:
    """Joins the timed characters of a text into the words of jieba's dictionary.

    Args:
        text: with spaces in the place of its tags.

    Raises:
        InvalidArgumentError: the package rjieba is not installed.
    """

    def __init__(self, text: str) -> None:
        try:
            from rjieba import cut
        except ImportError:
            raise InvalidArgumentError("words of Chinese need the package rjieba") from None
        self._text = text
        self._inner = {place for run in _CHINESE.finditer(text) for place in _inner(run, cut)}
        self._place = 0
        self._held: list[TimedWord] = []

    def begin_at(self, place: int) -> None:
        """The first word comes behind this many characters of the text."""
        self._place = place

    def push(self, words: Iterable[TimedWord]) -> list[TimedWord]:
        """The words that these end, in order; together they are the text as it was sent."""
        told: list[TimedWord] = []
        for word in words:
            start = self._text.find(word.text, self._place)
            if start not in self._inner:
                told += self.finish()
            self._held.append(word)
            if start >= 0:
                self._place = start + len(word.text)
            if start < 0 or self._place not in self._inner:
                told += self.finish()
        return told

    def finish(self) -> list[TimedWord]:
        """The word whose end has not come."""
        held, self._held = self._held, []
        return (
            [TimedWord("".join(word.text for word in held), held[0].start_s, held[-1].end_s)] if held else []
        )


def _inner(run: re.Match[str], cut: Callable[[str], list[str]]) -> Iterator[int]:
    """Places in the text that are within a word of a run."""
    ends = set(accumulate(map(len, cut(run[0])), initial=run.start()))
    return (place for place in range(*run.span()) if place not in ends)
