"""A place in a text at which a written form may begin, and what was read there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language

_WORD_BEFORE = re.compile(r"([^\W_]+)[\s:：.#(\"“'*<>=≥≤~^]*\Z")
_REACH = 32
"""Characters before a place that may say what follows."""
_AROUND = 300
"""Characters around a place whose words may say what it is about."""


class ReadForm(NamedTuple):
    """A written form that was read.

    Attributes:
        end: where it ends in the text.
        words: what is spoken in its place.
    """

    end: int
    words: str


@dataclass(frozen=True)
class Place:
    """A place in a text.

    Attributes:
        text: the whole clause.
        start: where the form begins.
        language: whose words are spoken.
    """

    text: str
    start: int
    language: Language

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return pattern.match(self.text, self.start)

    def near(self, pattern: re.Pattern[str]) -> bool:
        """Whether a pattern occurs in the sentences around this place."""
        return bool(pattern.search(self.text, max(0, self.start - _AROUND), self.start + _AROUND))

    @cached_property
    def before(self) -> str:
        """The last characters before this place."""
        return self.text[max(0, self.start - _REACH) : self.start]

    @cached_property
    def word_before(self) -> str:
        """The word before this place in small letters; empty where a sentence or bracket ends between."""
        found = _WORD_BEFORE.search(self.before)
        return found[1].lower() if found else ""

    def apart(self, start: int) -> Place:
        """The place at ``start``, as if the text began there: what is before it does not count."""
        return Place(self.text[start:], 0, self.language)


def first(
    readers: Iterable[Callable[..., ReadForm | None]], place: Place, *more: Language
) -> ReadForm | None:
    """The form at a place that the first of several readers finds; None where none does.

    Args:
        readers: called with the place and ``more``.
    """
    for read in readers:
        found = read(place, *more)
        if found is not None and found.end > place.start:
            return found
    return None
