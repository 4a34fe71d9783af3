"""Text as it should be spoken: numbers in words, spaces and marks in order."""

from __future__ import annotations

import re
from typing import Literal

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text import chinese, english
from cosyvoice_runtime.text.language import AUTO, resolve
from cosyvoice_runtime.text.library import Library
from cosyvoice_runtime.text.marks import SPECIAL, holds_control_token

Mode = Literal["wetext", "rules", "none"]
MODES = ("wetext", "rules", "none")


class Normaliser:
    """Normalises Chinese and English text; other languages keep their words and numbers.

    Modes:
        ``wetext``: dates, times, amounts, measures and numbers are read by the WeText grammars, helped by
            rules where these misread.
        ``rules``: no library. What upstream does without one, without its bugs: English numbers in words,
            Chinese ones left to the model.
        ``none``: only the whitespace around the text is dropped.

    Text that holds a control token (``<|...|>``) is returned as it is, special tokens are never changed.

    Raises:
        InvalidInput: unknown mode.
        CosyVoiceError: mode ``wetext`` without the package.
    """

    def __init__(self, mode: Mode = "wetext") -> None:
        if mode not in MODES:
            raise InvalidInput("normaliser", mode, f"one of {', '.join(MODES)}")
        self.mode = mode
        self._chinese = Library("zh") if mode == "wetext" else None
        self._english = (
            english.expression_rules(Library("en")) if mode == "wetext" else english.number_rules()
        )

    def __call__(self, text: str, language: str = AUTO) -> str:
        """The normalised text.

        Raises:
            InvalidInput: ``language`` is neither ``auto`` nor a language tag.
        """
        language = resolve(text, language)
        if holds_control_token(text):
            return text
        return self.ending(self.part(text.strip(), language), language)

    def part(self, text: str, language: str, following: str = "") -> str:
        """Normalise a part that ends with a sentence; the parts of a text join to the whole's result.

        Args:
            text: the part, with the spaces after its last mark.
            language: resolved language.
            following: first character of the next part, empty at the end of the text.
        """
        if self.mode == "none" or holds_control_token(text):
            return text
        if language == "zh":
            return chinese.clean(self._read_chinese(text), following)
        text = re.sub(r"\s*[\t\n\r]\s*", " ", text)
        return self._read_english(text) if language == "en" else text

    def ending(self, text: str, language: str) -> str:
        """Normalise what only the end of a text shows: a Chinese text doesn't end with a comma."""
        return chinese.end_commas(text) if language == "zh" and self.mode != "none" else text

    def _read_chinese(self, text: str) -> str:
        library = self._chinese
        if library is None:
            return text
        return _between_tokens(text, lambda words: chinese.read_numbers(words, library))

    def _read_english(self, text: str) -> str:
        return _between_tokens(text, lambda words: english.apply(self._english, words))


def _between_tokens(text: str, read: english.Read) -> str:
    """``read`` applied to everything but special tokens."""
    tokens = SPECIAL.findall(text)
    words = [read(part) for part in SPECIAL.split(text)]
    return words[0] + "".join(token + part for token, part in zip(tokens, words[1:], strict=True))
