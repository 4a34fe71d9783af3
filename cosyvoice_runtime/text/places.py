"""Places in a text as it came, by those in what is visible of it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from itertools import accumulate

Visible = Callable[[str], str]
"""Leaves out what shows nothing."""
_PART = re.compile(r"(?s).{0,255}[\s\u3001\u3002\uff0c]|.+?(?:[\s\u3001\u3002\uff0c]|\Z)")
"""A part of a text, some 256 characters that end with a space or a mark: what is visible of it does not
depend on what follows."""


def places(text: str, shown: str, visible: Visible) -> Callable[[int], int]:
    """The function from a number of characters of what is visible to that of the text up to there.

    Args:
        shown: what is visible of the text. Parts of it are what is visible of the text's parts.
    """
    if shown == text:
        return int
    parts = _PART.findall(text)
    seen = [len(visible(part)) for part in parts]
    starts = [0, *accumulate(map(len, parts))]
    return partial(_place, parts, starts, [0, *accumulate(seen)], visible)


def _place(parts: list[str], starts: list[int], seen: list[int], visible: Visible, count: int) -> int:
    number = bisect_left(seen, count, 1) - 1
    if number >= len(parts):
        return starts[-1]
    part, inside = parts[number], count - seen[number]
    if seen[number + 1] - seen[number] == len(part):
        return starts[number] + inside
    return starts[number] + bisect_left(range(len(part)), inside, key=lambda end: len(visible(part[:end])))
