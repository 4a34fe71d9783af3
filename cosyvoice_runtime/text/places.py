"""Places in a text as it came, by those in what is visible of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from itertools import accumulate

Visible = Callable[[str], str]
"""Leaves out what shows nothing."""


def places(text: str, shown: str, visible: Visible) -> Callable[[int], int]:
    """The function from a number of characters of what is visible to that of the text up to there.

    Args:
        shown: what is visible of the text. Lines of it are what is visible of the text's lines.
    """
    if shown == text:
        return int
    lines = text.splitlines(keepends=True)
    seen = [len(visible(line)) for line in lines]
    starts = [0, *accumulate(map(len, lines))]
    return partial(_place, lines, starts, [0, *accumulate(seen)], visible)


def _place(lines: list[str], starts: list[int], seen: list[int], visible: Visible, count: int) -> int:
    number = bisect_left(seen, count, 1) - 1
    if number >= len(lines):
        return starts[-1]
    line, inside = lines[number], count - seen[number]
    if seen[number + 1] - seen[number] == len(line):
        return starts[number] + inside
    return starts[number] + bisect_left(range(len(line)), inside, key=lambda end: len(visible(line[:end])))
