"""The parts of what is said of a text: words, each stretch in one manner, paragraphs, and silences."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, Protocol


class Pause(NamedTuple):
    """A silence that the text asks for."""

    seconds: float


class Manner(NamedTuple):
    """How a stretch of text is spoken.

    Attributes:
        rate: times the speed of the request.
        voice: name of a voice; empty for the request's own.
    """

    rate: float = 1.0
    voice: str = ""


class Boundary(Enum):
    """A boundary between two stretches of words."""

    PARAGRAPH = "paragraph"
    """A paragraph or a heading ended, and another one begins."""


Said = str | Pause | Manner | Boundary
"""A part of what is said: words, a silence, the manner of what follows, or the beginning of a paragraph."""
USUAL = Manner()


def joined(parts: Iterable[Said]) -> list[Said]:
    """The parts, words that follow each other as one string."""
    whole: list[Said] = []
    for part in parts:
        if isinstance(part, str) and whole and isinstance(whole[-1], str):
            whole[-1] += part
        else:
            whole.append(part)
    return whole


class Languages(Protocol):
    """Knows the languages in which a text may be."""

    def tell(self, words: str, asked: str) -> str:
        """The primary subtag of a language that is asked for; for ``auto`` the words' own, empty where they
        don't tell it. An InvalidInput tells that it is no language."""

    def in_language(self, words: str, language: str) -> str:
        """Words with their numbers in the words of a language."""
