"""What an engine is made from: the speech LM's weights, and the ids that it reads and emits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary, tokenizer_length
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import TEXT_TABLE
from cosyvoice_runtime.errors import CheckpointError, InvalidInput

LAYOUTS = ("merged", "speech")
OUTPUT_ROWS_MULTIPLE = 64
"""Rows of the speech layout are padded to it, for aligned products: 6,564 to 6,592, halved on two GPUs."""


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
        """The vocabulary of a checkpoint."""
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


@dataclass(frozen=True)
class Source:
    """
    Attributes:
        files: everything that the converted weights depend on.
    """

    directory: Path
    config: SpeechLMConfig
    text_tokens: int
    files: tuple[Path, ...]

    @classmethod
    def open(cls, directory: str | Path) -> Source:
        """Look at a directory; reads no weights.

        Raises:
            CheckpointError: a file is missing or damaged, or the speech LM is no Qwen2.
        """
        directory = Path(directory)
        layout = Layout(directory)
        layout.require_qwen2("a checkpoint of TensorRT-LLM")
        files = (layout.weights("llm"), layout.config, layout.qwen2_config, layout.vocabulary)
        config = load_config(directory).speech_lm
        text_tokens = tokenizer_length(layout)
        if text_tokens > config.text_vocab_size:
            raise CheckpointError(
                f"{layout.vocabulary}: {text_tokens} tokens, but {TEXT_TABLE} has "
                f"{config.text_vocab_size} rows"
            )
        return cls(directory, config, text_tokens, files)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors in the names of ``llm.pt``, mapped from the file where its format allows it.

        Raises:
            CheckpointError: the file is damaged or does not fit the configuration.
        """
        return load_tensors(Layout(self.directory), "llm", load_config(self.directory))

    def names(self) -> dict[str, Path]:
        """The files by their names relative to the directory."""
        return {path.relative_to(self.directory).as_posix(): path for path in self.files}
