"""The text normalisation library: WeText's finite-state grammars, which its wheel carries (no download)."""

from __future__ import annotations

import logging
from typing import Literal

from cosyvoice_runtime.errors import CosyVoiceError, shorten

logger = logging.getLogger(__name__)


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
