"""Blocks of a text, which are normalised one after another, and where in it their sentences end."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from cosyvoice_runtime.text.clauses import sentence_ends
from cosyvoice_runtime.text.markup.said import Boundary, Manner, Pause, Said
from cosyvoice_runtime.text.split import Placed, SplitStyle, bounded, sentences

BLOCK, LONGEST_BLOCK = 300, 600
"""A paragraph of more characters than the second is divided after the first sentence that ends behind the
first: normalising 300 characters takes some 5 ms on a CPU of 2 GHz, for which the first audio waits."""
_CUT = 160
"""Characters behind :data:`BLOCK` in which a sentence without an end is divided."""
_TAIL = 12
"""Letters and digits by which the end of a sentence is found again."""
_SILENT = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class TextBlock:
    """Words of one paragraph, in one manner.

    Attributes:
        said: characters of what is said before it.
        following: first character after it in its paragraph; empty where it is the paragraph's last block.
    """

    words: str
    said: int
    following: str = ""

    @property
    def is_last(self) -> bool:
        """Whether a paragraph, or words in one manner, end with it."""
        return not self.following


def blocks(
    parts: Iterable[Said], style: SplitStyle, special: re.Pattern[str]
) -> Iterator[TextBlock | Pause | Manner | Boundary]:
    """The words of a text as blocks, which do not depend on how it came, and what stands between words."""
    words, said = "", 0
    for part in parts:
        if isinstance(part, str):
            words += part
            while len(words) > LONGEST_BLOCK and "<|" not in words:  # What is prepared by hand stays whole.
                end = _end(words[: LONGEST_BLOCK + 1], style, special)
                yield TextBlock(words[:end], said, words[end])
                words, said = words[end:], said + end
            continue
        if words:
            yield TextBlock(words, said)
            words, said = "", said + len(words)
        yield part
    if words:
        yield TextBlock(words, said)


def _end(words: str, style: SplitStyle, special: re.Pattern[str]) -> int:
    """Where a block ends that is the beginning of these words."""
    ends = sentence_ends(words, style, BLOCK)
    return next(ends, 0) or BLOCK + len(next(bounded(words[BLOCK:-1], _CUT, len, special)))


def placed(normalised: str, words: str, style: SplitStyle) -> Iterator[Placed]:
    """The sentences of normalised words, each with its end in the words as they were.

    Where normalising has changed how many sentences there are, the ends are those of the words' sentences
    that end alike, or lie nearest.
    """
    said = list(sentences(normalised, style))
    ends = list(accumulate(map(len, sentences(words, style))))
    if not ends or not said:
        yield from (Placed(sentence, len(words)) for sentence in said)
        return
    ends[-1] = len(words)
    if len(said) == len(ends):
        yield from map(Placed, said, ends)
        return
    end = 0
    for sentence, spoken in zip(said, accumulate(map(len, said)), strict=True):
        end = max(end, _nearest(ends, spoken * len(words) // len(normalised), sentence, words))
        yield Placed(sentence, end)


def _nearest(ends: list[int], place: int, sentence: str, words: str) -> int:
    """The end near a place behind which the words end as a sentence does, else the nearest."""
    tail = _letters(sentence)
    first = bisect_left(ends, place)
    near = sorted(ends[max(0, first - 2) : first + 2], key=lambda end: abs(end - place))
    alike = (end for end in near if tail and _letters(words[:end][-4 * _TAIL :]).endswith(tail))
    return next(alike, near[0])


def _letters(text: str) -> str:
    """The last letters and digits of a text, without case."""
    return _SILENT.sub("", text).casefold()[-_TAIL:]
