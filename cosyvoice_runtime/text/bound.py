"""Cutting a text that has no usable sentence end, at the best place within a length."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator

from cosyvoice_runtime.checkpoint.special_tokens import SPECIAL_TOKENS
from cosyvoice_runtime.text.marks import SPECIAL

_PAUSES = frozenset(",，、;；:：…—–)）।۔؟،")
_JOINER = "\u200d"
_LONGEST_TOKEN = max(map(len, SPECIAL_TOKENS))
_CHARACTERS_PER_TOKEN = 16
"""Most characters of a part for each unit of its limit: a bound that keeps the cost linear."""


def bounded(text: str, limit: int, count: Callable[[str], int]) -> Iterator[str]:
    """Parts of a text with ``count(part) <= limit``, cut after a pause, else after a space, else anywhere.

    A cut never falls inside a special token, a combining sequence, a joined emoji or a flag; such an
    unbreakable unit that exceeds the limit on its own is returned whole.
    """
    while len(text) > limit * _CHARACTERS_PER_TOKEN or count(text) > limit:
        cut = _cut(text, limit, count)
        yield text[:cut]
        text = text[cut:]
    if text:
        yield text


def _cut(text: str, limit: int, count: Callable[[str], int]) -> int:
    end = min(len(text), limit * _CHARACTERS_PER_TOKEN)
    places = list(_places(text, end))
    fitting = bisect_right(places, limit, key=lambda place: count(text[:place]))
    if fitting == 0:
        return next(_places(text, len(text)), len(text))
    # The later half only: a comma near the start would make a tiny segment.
    candidates = places[fitting // 2 : fitting]
    for is_good in (_PAUSES.__contains__, str.isspace):
        for place in reversed(candidates):
            if is_good(text[place - 1]):
                return place
    return candidates[-1]


def _places(text: str, end: int) -> Iterator[int]:
    """Positions before ``end`` where a text may be cut."""
    tokens = SPECIAL.finditer(text, 0, end + _LONGEST_TOKEN)
    inside = {place for token in tokens for place in range(token.start() + 1, token.end())}
    flags = 0
    for place in range(1, end):
        flags = flags + 1 if _is_flag_letter(text[place - 1]) else 0
        joins = _extends(text[place]) or text[place - 1] == _JOINER
        half_flag = flags % 2 == 1 and _is_flag_letter(text[place])
        if place not in inside and not joins and not half_flag:
            yield place


def _extends(character: str) -> bool:
    """Whether a character belongs to the one before: combining marks, joiner, emoji skin tones."""
    is_skin_tone = "\U0001f3fb" <= character <= "\U0001f3ff"
    return character == _JOINER or is_skin_tone or unicodedata.category(character)[0] == "M"


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
