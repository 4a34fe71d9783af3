"""Ids of text tokens beyond the vocabulary's own, and one vocabulary of text, speech and control ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.json_file import read_json
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.families.tokens import END_OF_PROMPT, SPECIAL_TOKENS
from cosyvoice_runtime.families.whisper_tokens import read_ranks


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


ROWS_MULTIPLE = 128
"""Embedding and head are padded to a multiple of it, for aligned matrix products."""
SILENT = -16384.0
"""Bias of rows that are no speech id. It is finite so that arithmetic on logits (temperature, penalties, sums
with a bias) never meets inf - inf, and a power of two, so that it is the same number in float32, float16 and
bfloat16; its probability is exactly 0 in each."""
NUM_STOPS = 3
"""CosyVoice2's speech ids that end the speech; they follow the speech codes."""


@dataclass(frozen=True)
class MergedVocabulary:
    """The text tokenizer's ids, the speech codes, the stop ids, sos and the task id, in this order.

    Attributes:
        text_tokens: ids of the text tokenizer, special tokens included.
        speech_rows: speech codes and stop ids.
        num_stops: speech ids that end the speech.
    """

    text_tokens: int
    speech_rows: int
    num_stops: int = NUM_STOPS

    @classmethod
    def of(cls, layout: Layout, config: SpeechLMConfig) -> MergedVocabulary:
        """That of a checkpoint."""
        return cls(tokenizer_length(layout), config.speech_rows, len(config.stop_ids))

    @property
    def speech_offset(self) -> int:
        """Id of speech code 0."""
        return self.text_tokens

    @property
    def sos_id(self) -> int:
        return self.text_tokens + self.speech_rows

    @property
    def task_id(self) -> int:
        return self.sos_id + 1

    @property
    def length(self) -> int:
        """Number of ids in use."""
        return self.task_id + 1

    @property
    def rows(self) -> int:
        """Rows of the embedding and of the head, padding included."""
        return self.length + -self.length % ROWS_MULTIPLE

    @property
    def text_ids(self) -> range:
        return range(self.text_tokens)

    @property
    def code_ids(self) -> range:
        """Ids of the speech codes."""
        return range(self.speech_offset, self.sos_id - self.num_stops)

    @property
    def stop_ids(self) -> range:
        """Ids that end the speech."""
        return range(self.sos_id - self.num_stops, self.sos_id)

    @property
    def speech(self) -> slice:
        """Codes and stop ids, among the rows of embedding and head."""
        return slice(self.speech_offset, self.sos_id)

    @property
    def shortest_prompt(self) -> list[int]:
        """Ids of the least that can be spoken: one text token."""
        return [self.sos_id, 0, self.task_id]
