"""Text as it should be spoken, in the language it is in: numbers in words, spaces and marks in order."""

from __future__ import annotations

import logging
import re
from typing import Literal

from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput, shorten
from cosyvoice_runtime.text import chinese, english
from cosyvoice_runtime.text.validate import SPECIAL, holds_control_token

logger = logging.getLogger(__name__)

AUTO = "auto"
UNDETERMINED = "und"

# The middle dot U+30FB and the long mark U+30FC also stand in Chinese text, so they don't count as kana.
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\uff66-\uff6f\uff71-\uff9d]")
_HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3]")
_HAN = re.compile("[\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_CHINESE = frozenset({"zh", "yue", "cmn"})
_CHINESE_STYLE = frozenset({"zh", "ja"})


def detect(text: str) -> str:
    """``ja`` with kana, else ``ko`` with hangul, else ``zh`` with Han, else ``en`` if all letters are ASCII.

    Anything else is ``und``: its numbers are left for the model to read.
    """
    for language, script in (("ja", _KANA), ("ko", _HANGUL), ("zh", _HAN)):
        if script.search(text):
            return language
    letters = filter(str.isalpha, text)
    return "en" if all(map(str.isascii, letters)) else UNDETERMINED


def resolve(text: str, language: str) -> str:
    """The primary language subtag asked for (``zh-CN`` -> ``zh``), or for ``auto`` the detected one.

    Raises:
        InvalidInput: ``language`` is neither ``auto`` nor a language tag.
    """
    if language == AUTO:
        return detect(text)
    if not _TAG.fullmatch(language):
        raise InvalidInput("language", language, "give auto or a language tag such as zh, en, ja, de")
    primary = language.split("-")[0].lower()
    return "zh" if primary in _CHINESE else primary


def counts_characters(language: str) -> bool:
    """Whether segments of this language are measured in characters (one character is about one syllable)."""
    return language in _CHINESE_STYLE


class Library:
    """Reads one expression (a date, a time, a clause with numbers) in one language; safe for threads.

    Expressions hold letters, digits and number punctuation only: the grammars escape quotes and backslashes
    in their output and reject many symbols, so whole texts are never handed to them.

    Raises:
        CosyVoiceError: the package ``wetext`` is not installed.
    """

    def __init__(self, language: Literal["zh", "en"]) -> None:
        try:
            # Here and not at the top: loading all grammars takes half a second and 45 MB, once per process.
            from wetext import Normalizer
        except ImportError as error:
            raise CosyVoiceError(
                "text normalisation needs the package wetext (pip install wetext==0.1.8); "
                'without it choose normaliser="rules" or normaliser="none"'
            ) from error
        self._grammar = Normalizer(lang=language)

    def __call__(self, expression: str) -> str:
        """The expression in words, or unchanged (and a log line) where the grammar has no reading for it."""
        try:
            words: str = self._grammar.normalize(expression)
        except AssertionError:  # how wetext says that no path accepts the input
            logger.info("no reading for %s, left to the number rules", shorten(expression))
            return expression
        return words


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

    Args:
        special: finds the special tokens.

    Raises:
        InvalidInput: unknown mode.
        CosyVoiceError: mode ``wetext`` without the package.
    """

    def __init__(self, mode: Mode = "wetext", special: re.Pattern[str] = SPECIAL) -> None:
        if mode not in MODES:
            raise InvalidInput("normaliser", mode, f"one of {', '.join(MODES)}")
        self.mode = mode
        self.special = special
        self._chinese = Library("zh") if mode == "wetext" else None
        self._english = (
            english.expression_rules(Library("en")) if mode == "wetext" else english.number_rules()
        )

    def __call__(self, text: str, language: str = AUTO) -> str:
        """The normalised text.

        Raises:
            InvalidInput: ``language`` is neither ``auto`` nor a language tag.
        """
        language = self.language(text, language)
        if holds_control_token(text):
            return text
        return self.ending(self.part(text.strip(), language), language)

    def language(self, text: str, language: str) -> str:
        """As :func:`resolve`; special tokens, which may hold letters of any language, say nothing."""
        return resolve(self.special.sub("", text), language)

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
        return self._between_tokens(text, lambda words: chinese.read_numbers(words, library))

    def _read_english(self, text: str) -> str:
        return self._between_tokens(text, lambda words: english.apply(self._english, words))

    def _between_tokens(self, text: str, read: english.Read) -> str:
        """``read`` applied to everything but special tokens."""
        tokens = self.special.findall(text)
        words = [read(part) for part in self.special.split(text)]
        return words[0] + "".join(token + part for token, part in zip(tokens, words[1:], strict=True))
