"""The text tokenizer of each family."""

from __future__ import annotations

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.text.tokenizer import TextTokenizer
from cosyvoice_runtime.text.whisper_tokenizer import WhisperTokenizer


def read_tokenizer(layout: Layout) -> TextTokenizer:
    """The tokenizer of a checkpoint.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    family = layout.family
    if family.has_qwen2:
        return TextTokenizer(layout.vocabulary.parent, family.special_tokens)
    return WhisperTokenizer(layout.vocabulary, family.special_tokens)
