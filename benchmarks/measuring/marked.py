"""Parts of pages that a program writes, between ``<!-- name -->`` and ``<!-- /name -->``."""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path

NUMBER = re.compile(r"(\d[\d,]*)(?!\w)")


def put(page: Path, name: str, text: str) -> None:
    """Replace the part."""
    begin, _, end = _split(page, name)
    page.write_text(f"{begin}\n{text}\n{end}", "utf-8")


def differences(page: Path, name: str, text: str, tolerance: float) -> list[str]:
    """Lines of the text that the part has otherwise; numbers may differ by this share of them."""
    old, new = _split(page, name)[1].strip().splitlines(), text.strip().splitlines()
    return [
        after or f"{before} is too much"
        for before, after in zip_longest(old, new, fillvalue="")
        if not _alike(before, after, tolerance)
    ]


def _split(page: Path, name: str) -> list[str]:
    """The text before the part, the part, and the text behind it; the marks don't belong to it."""
    return re.split(rf"(?<=<!-- {name} -->)|(?=<!-- /{name} -->)", page.read_text("utf-8"))


def _alike(before: str, after: str, tolerance: float) -> bool:
    """Whether the words are the same, and the numbers nearly."""
    old, new = NUMBER.split(before), NUMBER.split(after)
    numbers = [[int(number.replace(",", "")) for number in words[1::2]] for words in (old, new)]
    return old[::2] == new[::2] and all(
        abs(one - other) <= tolerance * other for one, other in zip(*numbers, strict=True)
    )
