"""Splitting of a long text into segments that are synthesised one after another, at the best places."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from cosyvoice_runtime.families.tokens import SPECIAL_TOKENS_AND_UNITS
from cosyvoice_runtime.text import dots
from cosyvoice_runtime.text.validate import SPECIAL

_PAUSES = frozenset(",，、;；:：…—–)）।۔؟،")
_NUMBER_MARKS = frozenset(".,:．，：")
_JOINER = "\u200d"
_LONGEST_TOKEN = max(map(len, SPECIAL_TOKENS_AND_UNITS))
_CHARACTERS_PER_TOKEN = 16
"""Most characters of a part for each unit of its limit: a bound that keeps the cost linear."""


def bounded(
    text: str, limit: int, count: Callable[[str], int], special: re.Pattern[str] = SPECIAL
) -> Iterator[str]:
    """Parts of a text with ``count(part) <= limit``, cut after a pause, else a space, else anywhere.

    A cut falls inside a number, or between it and what stands next to it, only where there is no other
    place. It never falls inside a special token, a combining sequence, a joined emoji or a flag; such an
    unbreakable unit that exceeds the limit on its own is returned whole.
    """
    while len(text) > limit * _CHARACTERS_PER_TOKEN or count(text) > limit:
        cut = _cut(text, limit, count, special)
        yield text[:cut]
        text = text[cut:]
    if text:
        yield text


def _cut(text: str, limit: int, count: Callable[[str], int], special: re.Pattern[str]) -> int:
    end = min(len(text), limit * _CHARACTERS_PER_TOKEN)
    places = list(_places(text, end, special))
    fitting = bisect_right(places, limit, key=lambda place: count(text[:place]))
    if fitting == 0:
        return next(_places(text, len(text), special), len(text))
    # The later half only: a comma near the start would make a tiny segment.
    late = places[fitting // 2 : fitting]
    candidates = [place for place in late if not _touches_number(text, place)] or late
    return max(reversed(candidates), key=lambda place: _fitness(text, place))


def _fitness(text: str, place: int) -> int:
    """Fitness of a place for a cut: best after a pause, then after a dot and a space, a space."""
    if text[place - 1] in _PAUSES:
        return 3
    if not text[place - 1].isspace():
        return 0
    return 2 if text[place - 2 : place - 1] == "." else 1


def _places(text: str, end: int, special: re.Pattern[str]) -> Iterator[int]:
    """Positions before ``end`` where a text may be cut."""
    tokens = special.finditer(text, 0, end + _LONGEST_TOKEN)
    inside = {place for token in tokens for place in range(token.start() + 1, token.end())}
    flags = 0
    for place in range(1, end):
        flags = flags + 1 if _is_flag_letter(text[place - 1]) else 0
        joins = _extends(text[place]) or text[place - 1] == _JOINER
        half_flag = flags % 2 == 1 and _is_flag_letter(text[place])
        if place not in inside and not joins and not half_flag:
            yield place


def _touches_number(text: str, place: int) -> bool:
    """Whether a cut would part a number (in digits or Chinese numerals), or it and its unit or sign."""
    mark, after = text[place - 1], text[place]
    before = text[place - 2 : place - 1]
    if mark in _NUMBER_MARKS:
        return before.isnumeric() and after.isnumeric()
    return mark.isnumeric() or after.isnumeric() or (mark.isspace() and before.isnumeric())


def _extends(character: str) -> bool:
    """Whether a character belongs to the one before: combining marks, joiner, emoji skin tones."""
    is_skin_tone = "\U0001f3fb" <= character <= "\U0001f3ff"
    return character == _JOINER or is_skin_tone or unicodedata.category(character)[0] == "M"


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


Count = Callable[[str], int]
"""Length of a text in the unit of the limits: characters (``len``) or tokens."""

_CLOSING_QUOTES = ('"', "”")


@dataclass(frozen=True)
class SplitLimits:
    """Lengths that steer :func:`split`, in the unit of its ``count``; defaults are upstream's.

    A segment is closed when the next sentence would take it past ``maximum`` and it is longer than
    ``minimum``. A last segment shorter than ``merge`` joins the one before. A sentence longer than ``hard``
    is cut (upstream never cuts one; ``None`` does the same). So no segment is longer than ``longest``.
    """

    maximum: int = 80
    minimum: int = 60
    merge: int = 20
    hard: int | None = 160

    @property
    def longest(self) -> int | None:
        """Bound of every segment, the final mark that is added apart; ``None`` without ``hard``."""
        return None if self.hard is None else max(self.maximum, self.minimum + self.hard) + self.merge


@dataclass(frozen=True)
class SplitStyle:
    """Which characters end a sentence.

    Attributes:
        marks: characters that end a sentence.
        final: mark that is added where a text ends without one.
        keep_words: a mark inside a word or number (3.14, 10:30, a.b) or after an abbreviation doesn't end
            a sentence; upstream splits there.
        dots: finds the abbreviations, see :func:`~cosyvoice_runtime.text.dots.inside_sentence`.
    """

    marks: str
    final: str
    keep_words: bool = True
    dots: re.Pattern[str] = dots.ENGLISH

    def ends_sentence(self, text: str, index: int) -> bool:
        """Whether the character at ``index`` ends a sentence."""
        if text[index] not in self.marks:
            return False
        return not self.keep_words or not self._is_inside(text, index)

    def announces(self, mark: str, following: str) -> bool:
        """Whether words before a mark may say how a code after it is read: ``验证码：8016``, ``PIN: 42``."""
        of_code = following.isdecimal() or ("、" in self.marks and "A" <= following <= "Z")
        return mark in ":：、" and of_code

    def _is_inside(self, text: str, index: int) -> bool:
        """Whether a mark stands between letters or digits of any width, or after an abbreviation."""
        around = text[max(0, index - 1) : index] + text[index + 1 : index + 2]
        around = unicodedata.normalize("NFKC", around)
        if len(around) == 2 and around.isascii() and _binds(text[index], around):
            return True
        return text[index] == "." and dots.inside_sentence(text, index, self.dots)


CHINESE = SplitStyle(marks="。？！；：、.?!;", final="。")
WESTERN = SplitStyle(marks=".?!;:", final=".")
WITH_ORDINALS = replace(WESTERN, dots=dots.OTHERS)


class Placed(NamedTuple):
    """A stretch of normalised text.

    Attributes:
        end: characters of what was normalised up to its end.
    """

    text: str
    end: int


def split(
    text: str, style: SplitStyle, limits: SplitLimits, count: Count, special: re.Pattern[str] = SPECIAL
) -> list[str]:
    """Segments of a text, in order, the last with a final mark."""
    parts = (Placed(sentence, 0) for sentence in sentences(complete(text, style), style))
    return [segment.text for segment in grouped(parts, limits, count, special)]


def grouped(
    parts: Iterable[Placed],
    limits: SplitLimits,
    count: Count,
    special: re.Pattern[str] = SPECIAL,
    start: int = 0,
) -> Iterator[Placed]:
    """Segments of sentences that come one after another, each as soon as no further sentence changes it.

    Args:
        start: the place before the first sentence.
    """
    before, current = Placed("", 0), Placed("", 0)
    for part in cut_sentences(parts, limits.hard, count, special, start):
        if count(current.text + part.text) > limits.maximum and count(current.text) > limits.minimum:
            if before.text:
                yield before
            before, current = current, Placed("", 0)
        current = Placed(current.text + part.text, part.end)
    if before.text and count(current.text) < limits.merge:
        before, current = Placed(before.text + current.text, max(before.end, current.end)), Placed("", 0)
    yield from filter(lambda segment: segment.text, (before, current))


def cut_sentences(
    sentences: Iterable[Placed], hard: int | None, count: Count, special: re.Pattern[str], start: int
) -> Iterator[Placed]:
    """The sentences, those longer than ``hard`` in parts."""
    for sentence in sentences:
        if hard is None:
            yield sentence
            continue
        said = 0
        for part in bounded(sentence.text, hard, count, special):
            said += len(part)
            yield Placed(part, start + (sentence.end - start) * said // len(sentence.text))
        start = sentence.end


def complete(text: str, style: SplitStyle) -> str:
    """The text with a final mark."""
    return text if not text or text[-1] in style.marks else text + style.final


def sentences(text: str, style: SplitStyle) -> Iterator[str]:
    """Parts of a text up to and with each mark and the quote that it closes, and the rest if there is one.

    A mark with nothing before it is dropped.
    """
    start = 0
    sentence = ""
    for index in range(len(text)):
        if not style.ends_sentence(text, index):
            continue
        if index > start:
            if sentence:
                yield sentence
            sentence = text[start : index + 1]
        start = index + 1
        if sentence and text.startswith(_CLOSING_QUOTES, start):
            sentence += text[start]
            start += 1
    yield from filter(None, (sentence, text[start:]))


def _binds(mark: str, around: str) -> bool:
    """Whether a mark belongs to the word or number around it; a wide colon does to a number alone."""
    return around.isdecimal() if mark == "：" else mark.isascii() and around.isalnum()
