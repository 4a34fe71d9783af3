"""Special tokens that may stand inside a text, and what they are made of."""

from __future__ import annotations

import re

from cosyvoice_runtime.checkpoint.special_tokens import SPECIAL_TOKENS

SPECIAL = re.compile("|".join(re.escape(token) for token in SPECIAL_TOKENS))


def holds_control_token(text: str) -> bool:
    """Whether the text is prepared by hand (``<|...|>``): then it is neither normalised nor split."""
    return "<|" in text and "|>" in text
