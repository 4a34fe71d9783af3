"""Checks on a text before anything is done with it, and the special tokens that may stand in it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import END_OF_PROMPT, SPECIAL_TOKENS


def special_pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """Finds the special tokens in a text."""
    return re.compile("|".join(re.escape(token) for token in tokens))


SPECIAL = special_pattern(SPECIAL_TOKENS)
"""Finds special tokens of CosyVoice2."""


def holds_control_token(text: str, special: re.Pattern[str] = SPECIAL) -> bool:
    """Whether the text is prepared by hand, and neither normalised nor split.

    A special token in ``<|...|>`` stands in it, or an instruction's end.
    """
    if "<|" not in text:
        return False
    return END_OF_PROMPT in text or any(token.startswith("<|") for token in special.findall(text))


MAX_TARGET_CHARACTERS = 10_000
"""About 40 minutes of speech in one request: longer texts belong in several requests."""

MAX_PROMPT_CHARACTERS = 1_000
"""A reference is at most 30 s long, which fast speech fills with about 500 characters."""

_ALLOWED_CONTROLS = frozenset("\t\n\r")


def require_text(field: str, text: str, limit: int = MAX_TARGET_CHARACTERS) -> None:
    """Refuse text that can't be spoken.

    Args:
        field: name of the input for the error.
        limit: most characters allowed.

    Raises:
        InvalidInput: empty or only whitespace, longer than ``limit``, lone surrogates (text that was never
            valid UTF-8), or control characters other than tab and line breaks.
    """
    if not text.strip():
        raise InvalidInput(field, text, "it must hold something to speak")
    require_characters(field, text, limit)


def require_characters(field: str, text: str, limit: int, before: int = 0) -> None:
    """Check more of a text, after ``before`` characters, as :func:`require_text`; it may be empty."""
    if before + len(text) > limit:
        raise InvalidInput(field, f"{before + len(text)} characters", f"at most {limit} characters")
    for character in text:
        category = unicodedata.category(character)
        if category == "Cs":
            raise InvalidInput(field, character, "it must be valid UTF-8 (a lone surrogate is not)")
        if category == "Cc" and character not in _ALLOWED_CONTROLS:
            raise InvalidInput(
                field, character, "the only control characters allowed are tab and line breaks"
            )
