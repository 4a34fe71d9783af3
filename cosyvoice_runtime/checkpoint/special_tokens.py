"""Tokens that CosyVoice2 adds to the Qwen2 byte-level vocabulary, in the order of their ids.

The published ``vocab.json`` ends at id 151642; the three tokens of Qwen2 follow (listed in the published
``tokenizer_config.json``), then CosyVoice2's own (listed nowhere in the directory), up to id 151662.
"""

from __future__ import annotations

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import read_json

QWEN2_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_PROMPT = "<|endofprompt|>"
COSYVOICE2_TOKENS = (
    END_OF_PROMPT,
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
SPECIAL_TOKENS = QWEN2_TOKENS + COSYVOICE2_TOKENS


def special_token_ids(vocabulary_size: int) -> dict[str, int]:
    """Id of each special token after a ``vocab.json`` of ``vocabulary_size`` entries."""
    return {token: vocabulary_size + place for place, token in enumerate(SPECIAL_TOKENS)}


def tokenizer_length(layout: Layout) -> int:
    """Number of text ids in use: the byte-level vocabulary and the special tokens (published: 151663)."""
    return len(read_json(layout.vocabulary)) + len(SPECIAL_TOKENS)
