"""Readings of Chinese characters that have several, by the word they stand in, and how CosyVoice3 is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cosyvoice_runtime.text.language import runs
from cosyvoice_runtime.text.markup import phonemes

Pronounced = Callable[[str, str], str]
"""Turns a text and its language into the form that the speech LM is given."""

TABLE = Path(__file__).with_name("polyphones.txt")


@dataclass(frozen=True)
class Reading:
    """The reading of one character of a text.

    Attributes:
        index: of the character in the text.
        pinyin: with its tone, as ``háng``.
        is_usual: it is what everybody reads there, so nothing has to be said.
    """

    index: int
    pinyin: str
    is_usual: bool


def readings(text: str) -> Iterator[Reading]:
    """Readings of the characters that the table knows, by the longest word at each place, from the left."""
    words, longest = _words()
    place = 0
    while place < len(text):
        lengths = range(longest.get(text[place], 0), 0, -1)
        word = next(
            (text[place : place + n] for n in lengths if text[place : place + n] in words), text[place]
        )
        for reading in words.get(word, ()):
            yield Reading(place + reading.index, reading.pinyin, reading.is_usual)
        place += len(word)


def pronounced(text: str, language: str) -> str:
    """:func:`in_units` for what is Chinese in a text whose language is ``language``."""
    return "".join(in_units(words) if found == "zh" else words for found, words in runs(text, language))


def as_it_is(text: str, _language: str) -> str:
    """The text, in place of :func:`pronounced` where the speech LM is told nothing."""
    return text


def in_units(text: str) -> str:
    """Chinese text with units of pronunciation in place of characters that are easily misread.

    银行 -> ``银[h][áng]``.
    """
    told = {
        reading.index: phonemes.in_units(reading.pinyin) for reading in readings(text) if not reading.is_usual
    }
    return "".join(told.get(index, character) for index, character in enumerate(text))


@cache
def _words() -> tuple[dict[str, list[Reading]], dict[str, int]]:
    """Word to the readings in it, and the length of the longest word by its first character."""
    words: dict[str, list[Reading]] = {}
    longest: dict[str, int] = {}
    for key, listed in _lines():
        for word in listed:
            words.setdefault(word, []).extend(_readings_in(word, *key))
            longest[word[0]] = max(longest.get(word[0], 0), len(word))
    return words, longest


def _lines() -> Iterator[tuple[list[str], list[str]]]:
    """Character and reading, or neither, and the words of each line of the table."""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            key, _, words = line.partition(":")
            yield key.split(), words.split()


def _readings_in(word: str, character: str = "", reading: str = "") -> Iterator[Reading]:
    """The reading of a character wherever it stands in a word; in brackets it is the usual one."""
    for index, other in enumerate(word):
        if other == character:
            yield Reading(index, reading.strip("()"), reading.startswith("("))
