"""Text as it should be spoken, in the language it is in: numbers in words, spaces and marks in order."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from copy import copy
from functools import cache
from typing import Literal

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.language_names import AUTO, language_tag
from cosyvoice_runtime.speakable import visible, without_controls
from cosyvoice_runtime.text import chinese
from cosyvoice_runtime.text.language import LETTER, resolve, runs
from cosyvoice_runtime.text.lexicon import Lexicon
from cosyvoice_runtime.text.reading import FormReader
from cosyvoice_runtime.text.reading.languages.english_nouns import is_about_japan
from cosyvoice_runtime.text.reading.languages.known import EUROPEAN, language_of
from cosyvoice_runtime.text.rules import Read, plain
from cosyvoice_runtime.text.validate import SPECIAL, holds_control_token

logger = logging.getLogger(__name__)

Mode = Literal["full", "rules", "none"]
MODES = ("full", "rules", "none")


class Normaliser:
    """Normalises text of the languages of its readers; other languages keep their words and numbers.

    Modes:
        ``full``: dates, times, amounts, measures and numbers are read, each clause in its own language.
        ``rules``: the same, all of a text in one language.
        ``none``: only the whitespace around the text is dropped.

    Characters that show nothing are dropped first, except in mode ``none``. Text that holds a special token
    in ``<|...|>`` is not changed further, other special tokens are never changed.

    Args:
        special: finds the special tokens.
        lexicon: words that are spoken as something else is, in every mode.

    Raises:
        InvalidInput: unknown mode.
    """

    def __init__(
        self, mode: Mode = "full", special: re.Pattern[str] = SPECIAL, lexicon: Lexicon | None = None
    ) -> None:
        if mode not in MODES:
            raise InvalidInput("normaliser", mode, f"one of {', '.join(MODES)}")
        self.mode = mode
        self.special = special
        self._lexicon = lexicon or Lexicon()
        self._without_reader: set[str] = set()

    def __call__(self, text: str, language: str = AUTO) -> str:
        """The normalised text; an InvalidInput for a ``language`` that is neither ``auto`` nor a tag."""
        text = self.visible(text)
        language = self.language(text, language)
        if holds_control_token(text, self.special):
            return text
        return self.ending(self.part(text.strip(), language), language)

    def language(self, text: str, language: str) -> str:
        """Language by :func:`resolve`; special tokens, which may hold letters of any, say nothing."""
        is_asked = language_tag(language) != AUTO
        return resolve("" if is_asked else self.special.sub("", self.visible(text)), language)

    def visible(self, text: str) -> str:
        """The text in which special tokens are looked for: without characters that show nothing."""
        return without_controls(text) if self.mode == "none" else visible(text)

    def part(self, text: str, language: str, following: str = "") -> str:
        """Normalise a part that ends with a sentence; the parts of a text join to the whole's result.

        Args:
            text: the part, with the spaces after its last mark.
            language: resolved language.
            following: first character of the next part, empty at the end of the text.
        """
        text = self.visible(text)
        if holds_control_token(text, self.special):
            return text
        text = self._between_tokens(text, self._lexicon)
        if self.mode == "none":
            return text
        if language == "zh":
            return chinese.clean(
                self._between_tokens(text, lambda words: self._read(words, language)), following
            )
        text = _LINE_END.sub(_line_end, text)
        text = self._between_tokens(text, lambda words: self._read(words, language))
        return re.sub(r"(?<=\w)\n", ". ", text).replace("\n", " ")

    def tell(self, words: str, asked: str) -> str:
        """The language asked for, or that of the words; empty for ``auto`` and words without letters."""
        return resolve(words, asked) if asked != AUTO or LETTER.search(words) else ""

    def in_language(self, words: str, language: str) -> str:
        """Normalise words of a text in a language of their own, by its tag or name."""
        return self.part(words, self.language(words, language))

    def with_words(self, lexicon: Lexicon) -> Normaliser:
        """The normaliser with a lexicon that counts before its own."""
        normaliser = copy(self)
        normaliser._lexicon = self._lexicon.under(lexicon)
        return normaliser

    def ending(self, text: str, language: str) -> str:
        """Normalise what only the end of a text shows: a Chinese text doesn't end with a comma."""
        return chinese.end_commas(text) if language == "zh" and self.mode != "none" else text

    def _read(self, text: str, language: str) -> str:
        """Numbers and the like in words, in the language of each clause."""
        if self.mode == "rules":
            return (_reader_of(language) or str)(text)
        return "".join(self._reader(found, words)(words) for found, words in _runs(text, language))

    def _reader(self, language: str, text: str) -> Read:
        reader = _reader_of(language)
        if reader is None and language not in self._without_reader and re.search("[0-9]", text):
            self._without_reader.add(language)
            logger.info("numbers of text in %s are left for the model to read: no normaliser", language)
        return reader or str

    def _between_tokens(self, text: str, read: Read) -> str:
        """``read`` applied to everything but special tokens."""
        tokens = self.special.findall(text)
        words = [read(part) for part in self.special.split(text)]
        return words[0] + "".join(token + part for token, part in zip(tokens, words[1:], strict=True))


_YUAN = re.compile("(?<![A-Z])[¥￥]")


def _runs(text: str, language: str) -> Iterator[tuple[str, str]]:
    """Stretches of one language; in those of a Chinese text, the sign of yen and yuan is that of yuan, unless
    the text is about Japan."""
    of_yuan = language == "zh" and bool(_YUAN.search(text)) and not is_about_japan(text)
    for found, words in runs(text, language):
        yield found, _YUAN.sub("CN¥", words) if of_yuan and found == "en" else words


_LINE_END = re.compile(r"(?<!\s)\s*[\t\n\r]\s*")
_DOT = re.compile(r"[^\W_]\.\Z")
_WRAPPED = re.compile(r"(?:\A|\n)[^\n]{50,90}\Z")


def _line_end(end: re.Match[str]) -> str:
    """A space, or a line's end where a dot before it ends a sentence and no page wrapped the line."""
    text, start = end.string, end.start()
    is_paragraph = end[0].count("\n") > 1
    goes_on = text[end.end() : end.end() + 1].islower() or _WRAPPED.search(text, max(0, start - 91), start)
    ends = is_paragraph or not goes_on
    return "\n" if _DOT.search(text, max(0, start - 2), start) and ends else " "


@cache
def _reader_of(tag: str) -> Read | None:
    """Reads a text in the words of a language; None where they are not known."""
    language = language_of(tag)
    if language is None:
        return None
    group = " " if tag in EUROPEAN else ","
    read = FormReader(language)
    return lambda text: read(plain(text, group))
