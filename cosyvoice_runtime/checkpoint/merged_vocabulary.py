"""One vocabulary of text, speech and control ids, as engines that know a single table of tokens use it."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.special_tokens import tokenizer_length

ROWS_MULTIPLE = 128
"""Embedding and head are padded to a multiple of it, for aligned matrix products."""
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
    def tokens(self) -> list[str]:
        """Text forms of everything after the text tokens."""
        codes = [f"<|s_{code}|>" for code in range(len(self.code_ids))]
        stops = [f"<|eos{number}|>" for number in range(1, self.num_stops + 1)]
        return [*codes, *stops, "<|sos|>", "<|task_id|>"]

    @property
    def shortest_prompt(self) -> list[int]:
        """Ids of the least that can be spoken: one text token."""
        return [self.sos_id, 0, self.task_id]
