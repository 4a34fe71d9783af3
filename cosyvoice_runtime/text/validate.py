"""Checks on a text before anything is done with it, and the special tokens that may stand in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import END_OF_PROMPT, SPECIAL_TOKENS
from cosyvoice_runtime.speakable import without_controls


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


MAX_TARGET_CHARACTERS = 100_000
"""Two hours of English speech in one request, or seven of Chinese."""

MOST_AT_ONCE = 10_000
"""Most characters of a text that is laid out, or whose speech is kept, as a whole: 40 minutes, 230 MB of
samples."""

MAX_PROMPT_CHARACTERS = 1_000
"""A reference is at most 30 s long, which fast speech fills with about 500 characters."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def require_text(field: str, text: str, limit: int = MAX_TARGET_CHARACTERS) -> None:
    """Refuse text that can't be spoken; control characters in it are dropped later.

    Args:
        field: name of the input for the error.
        limit: most characters allowed.

    Raises:
        InvalidInput: empty or only whitespace and control characters, longer than ``limit``, or lone
            surrogates (text that was never valid UTF-8).
    """
    if not without_controls(text).strip():
        raise InvalidInput(field, text, "it must hold something to speak")
    require_characters(field, text, limit)


def require_characters(field: str, text: str, limit: int, before: int = 0) -> None:
    """Check more of a text, after ``before`` characters, as :func:`require_text`; it may be empty."""
    if before + len(text) > limit:
        raise InvalidInput(field, f"{before + len(text)} characters", f"at most {limit} characters")
    if surrogate := _SURROGATE.search(text):
        raise InvalidInput(field, surrogate[0], "it must be valid UTF-8 (a lone surrogate is not)")
