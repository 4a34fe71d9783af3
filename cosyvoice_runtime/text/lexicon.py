"""Words that a deployment wants spoken as something else is: names, abbreviations, characters misread."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import UNITS
from cosyvoice_runtime.speakable import visible

FIELD = "lexicon"
MAX_WORDS = 10_000
MAX_OF_A_REQUEST = 500
MAX_CHARACTERS = 200
"""Most characters of a word, and of the words spoken for it."""
REMARK = "#"
"""Begins a line that says nothing."""

_CONTROL_TOKEN = re.compile(r"<\||\|>")
_EAST_ASIAN = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U0001aff0-\U0001b16f\U00020000-\U000323af]"
)
"""Han, kana and hangul, whose words stand without spaces."""


class Lexicon:
    """Puts what is to be spoken in the place of words. Safe for threads.

    The longest word counts, with capitals as they are listed. One that begins or ends with a letter or digit
    of any alphabet stands for whole words: ``nginx`` isn't found in ``nginxes``; Han, kana and hangul are no
    alphabets here.

    Args:
        words: what is spoken, by word.
        below: of whose words those count that are longer.
    """

    def __init__(self, words: Mapping[str, str] | None = None, below: Lexicon | None = None) -> None:
        self._words = dict(words or {})
        self._below = below
        lengths: dict[str, set[int]] = defaultdict(set)
        for word in self._words:
            lengths[word[0]].add(len(word))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    @classmethod
    def read(cls, path: Path, special_tokens: Iterable[str], most: int = MAX_WORDS) -> Lexicon:
        """A file in UTF-8 with a word, a tab and what is spoken on each line; ``#`` begins a remark.

        Args:
            special_tokens: of the checkpoint's family.
            most: words.

        Raises:
            InvalidInput: the file can't be read, is no such file, or holds control characters, control tokens
                (``<|...|>``) or units of pronunciation that the family doesn't know.
        """
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeError) as error:
            raise InvalidInput(FIELD, str(path), f"a file of words ({error})") from None
        return cls.parse(text, special_tokens, f" of {path}", most)

    @classmethod
    def parse(
        cls, text: str, special_tokens: Iterable[str], source: str = "", most: int = MAX_OF_A_REQUEST
    ) -> Lexicon:
        """The lexicon of a file's text, refused as :meth:`read` does.

        Args:
            source: the text that an error says after the number of a line.
            most: words.
        """
        unknown = set(UNITS).difference(special_tokens)
        words: dict[str, str] = {}
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip() or line.startswith(REMARK):
                continue
            place = f"line {number}{source}"
            word, spoken = read_entry(place, line, unknown)
            if word in words:
                raise _refused(place, word, "each word once")
            words[word] = spoken
            if len(words) > most:
                raise InvalidInput(FIELD, f"more than {most} words", f"at most {most}")
        return cls(words)

    def under(self, lexicon: Lexicon) -> Lexicon:
        """The words of another lexicon, with this one's below them."""
        return Lexicon(lexicon._words, below=self)

    @property
    def words(self) -> dict[str, str]:
        """The words of this lexicon alone, each with what is spoken for it."""
        return dict(self._words)

    def __len__(self) -> int:
        """Number of words."""
        return len(self._words)

    def __call__(self, text: str) -> str:
        """The text with what is spoken in place of the words."""
        if self._is_empty:
            return text
        parts = []
        kept = place = 0
        while place < len(text):
            word, spoken = self._word_at(text, place)
            if word:
                parts += [text[kept:place], spoken]
                kept = place = place + len(word)
            else:
                place += 1
        return "".join([*parts, text[kept:]])

    @property
    def _is_empty(self) -> bool:
        return not self._words and (self._below is None or self._below._is_empty)

    def _word_at(self, text: str, place: int) -> tuple[str, str]:
        """The longest word there, and what is spoken for it; both empty if there is none."""
        below = self._below._word_at(text, place) if self._below else ("", "")
        lengths = self._lengths.get(text[place])
        if lengths is None or _is_inside(text, place):
            return below
        for length in lengths:
            word = text[place : place + length]
            if len(word) < len(below[0]):
                break
            if word in self._words and not _is_inside(text, place + len(word)):
                return word, self._words[word]
        return below


def read_entry(place: str, line: str, unknown: Collection[str] = ()) -> tuple[str, str]:
    """A word and what is spoken for it, of a line with a tab between them.

    Args:
        place: of the line, as an error says it.
        unknown: units of pronunciation that may not be in it.

    Raises:
        InvalidInput: it is no such line.
    """
    line = unicodedata.normalize("NFC", line)  # as text is, before words are looked for
    if found := [
        character for character in line.replace("\t", "") if unicodedata.category(character) == "Cc"
    ]:
        raise _refused(place, found[0], "words without control characters")
    if _CONTROL_TOKEN.search(visible(line)):
        raise _refused(place, line, "words without <| and |>, which control tokens begin and end with")
    parts = [part.strip() for part in line.split("\t")]
    if len(parts) != 2 or not all(parts):
        raise _refused(place, line, "a word, a tab and what is spoken for it")
    if max(map(len, parts)) > MAX_CHARACTERS:
        raise _refused(place, parts[0], f"at most {MAX_CHARACTERS} characters")
    if found := [unit for unit in unknown if unit in parts[1]]:
        raise _refused(place, found[0], "words: the checkpoint's speech LM reads no units of pronunciation")
    return parts[0], parts[1]


def _refused(place: str, value: Any, limit: str) -> InvalidInput:
    return InvalidInput(FIELD, value, f"{place} needs {limit}")


def _is_inside(text: str, place: int) -> bool:
    """Whether a word of an alphabet goes on there."""
    return 0 < place < len(text) and _is_of_alphabet(text[place - 1]) and _is_of_alphabet(text[place])


def _is_of_alphabet(character: str) -> bool:
    """Whether it is a letter, a mark on one or a digit."""
    category = unicodedata.category(character)
    return (category[0] in "LM" or category == "Nd") and not _EAST_ASIAN.match(character)
