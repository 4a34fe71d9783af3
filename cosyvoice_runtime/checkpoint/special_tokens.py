"""Ids of text tokens beyond the vocabulary's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cosyvoice_runtime.checkpoint.json_file import read_json
from cosyvoice_runtime.families.tokens import END_OF_PROMPT, SPECIAL_TOKENS
from cosyvoice_runtime.families.whisper_tokens import read_ranks

if TYPE_CHECKING:
    from cosyvoice_runtime.checkpoint.layout import Layout


def special_token_ids(vocabulary_size: int, tokens: Sequence[str] = SPECIAL_TOKENS) -> dict[str, int]:
    """Id of each special token after a ``vocab.json`` of ``vocabulary_size`` entries."""
    return {token: vocabulary_size + place for place, token in enumerate(tokens)}


def end_of_prompt_id(layout: Layout) -> int | None:
    """Text id with which the instruction ends that every prompt must hold; None where none is needed."""
    family = layout.family
    if not family.needs_end_of_prompt:
        return None
    return special_token_ids(len(read_json(layout.vocabulary)), family.special_tokens)[END_OF_PROMPT]


def tokenizer_length(layout: Layout) -> int:
    """Number of text ids in use: the byte-level vocabulary and the family's special tokens (CosyVoice2:
    151663, CosyVoice-300M: 51866)."""
    family = layout.family
    read = read_json if family.has_qwen2 else read_ranks
    return len(read(layout.vocabulary)) + len(family.special_tokens)
