"""Special tokens that may stand inside a text, and what they are made of."""

from __future__ import annotations

import re

END_OF_PROMPT = "<|endofprompt|>"

BASE_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Special tokens of Qwen2 itself (ids 151643..151645 in the published checkpoint)."""

INLINE_MARKS = (
    "[breath]",
    "<strong>",
    "</strong>",
    "[noise]",
    "[laughter]",
    "[cough]",
    "[clucking]",
    "[accent]",
    "[quick_breath]",
    "<laughter>",
    "</laughter>",
    "[hissing]",
    "[sigh]",
    "[vocalized-noise]",
    "[lipsmack]",
    "[mn]",
)
"""Sounds and emphasis that a text may ask for, in the order of their ids (151647..151662)."""

SPECIAL_TOKENS = (*BASE_TOKENS, END_OF_PROMPT, *INLINE_MARKS)
"""All special tokens of CosyVoice2, in id order."""

SPECIAL = re.compile("|".join(re.escape(token) for token in SPECIAL_TOKENS))


def holds_control_token(text: str) -> bool:
    """Whether the text is prepared by hand (``<|...|>``): then it is neither normalised nor split."""
    return "<|" in text and "|>" in text
