"""Ids of an engine: which row of its embedding is which text, speech or control id, and what it can emit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.errors import InvalidInput

LAYOUTS = ("merged", "speech")
OUTPUT_ROWS_MULTIPLE = 64
"""Of the speech layout, for aligned matrix products: 6,564 rows become 6,592, halved on two GPUs."""


@dataclass(frozen=True)
class EngineVocabulary:
    """
    Attributes:
        layout: ``merged`` reads and emits the ids of :class:`MergedVocabulary`, as NVIDIA's stock model
            does. ``speech`` emits only speech: its ids are the speech rows, padding, then the text ids, sos
            and the task id, which are read but can't be emitted.
        text_tokens: text ids in use.
        speech_rows: speech codes and stop ids.
        num_stops: of them end the speech; they are the last.
        end_row: the one of them that is the end of speech.

    Raises:
        InvalidInput: another layout.
    """

    layout: str
    text_tokens: int
    speech_rows: int
    num_stops: int
    end_row: int

    @classmethod
    def of(cls, layout: str, text_tokens: int, config: SpeechLMConfig) -> EngineVocabulary:
        """That of a checkpoint."""
        return cls(layout, text_tokens, config.speech_rows, len(config.stop_ids), config.eos_id)

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise InvalidInput("layout", self.layout, f"one of {', '.join(LAYOUTS)}")

    @property
    def output_rows(self) -> int:
        """Rows of the output head, padding included: TensorRT-LLM's ``vocab_size``."""
        if self._merged is not None:
            return self._merged.rows
        return self.speech_rows + -self.speech_rows % OUTPUT_ROWS_MULTIPLE

    @property
    def embedding_rows(self) -> int:
        """Rows of the input embedding."""
        return self.output_rows if self._merged is not None else self.task_id + 1

    @property
    def text_offset(self) -> int:
        return 0 if self._merged is not None else self.output_rows

    @property
    def speech_offset(self) -> int:
        return 0 if self._merged is None else self._merged.speech_offset

    @property
    def sos_id(self) -> int:
        return self.text_offset + self.text_tokens if self._merged is None else self._merged.sos_id

    @property
    def task_id(self) -> int:
        return self.sos_id + 1

    @property
    def speech(self) -> slice:
        """Codes and stop ids, among the rows of embedding and head."""
        return slice(self.speech_offset, self.speech_offset + self.speech_rows)

    @property
    def stop_ids(self) -> range:
        """Ids that end the speech."""
        return range(self.speech.stop - self.num_stops, self.speech.stop)

    @property
    def end_id(self) -> int:
        """The stop id that is the end of speech."""
        return self.speech_offset + self.end_row

    def input_ids(self, text: Iterable[int], speech: Iterable[int]) -> list[int]:
        """``[sos] text [task_id] speech``, from text ids and speech codes within their tables."""
        return [
            self.sos_id,
            *(self.text_offset + token for token in text),
            self.task_id,
            *(self.speech_offset + code for code in speech),
        ]

    @property
    def _merged(self) -> MergedVocabulary | None:
        if self.layout != "merged":
            return None
        return MergedVocabulary(self.text_tokens, self.speech_rows, self.num_stops)
