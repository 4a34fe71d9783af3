"""The speech LM's weights, from a checkpoint directory or its Hugging Face form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.huggingface import SPARE_ROWS, read_merged, recorded_vocabulary
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.special_tokens import tokenizer_length
from cosyvoice_runtime.checkpoint.tensors import TEXT_TABLE
from cosyvoice_runtime.errors import CheckpointError

MERGED_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Source:
    """
    Attributes:
        files: everything that the converted weights depend on.
        merged: it is the Hugging Face form.
    """

    directory: Path
    config: SpeechLMConfig
    text_tokens: int
    files: tuple[Path, ...]
    merged: bool

    @classmethod
    def open(cls, directory: str | Path) -> Source:
        """Look at a directory; reads no weights.

        Raises:
            CheckpointError: a file is missing or damaged, or the speech LM is no Qwen2.
        """
        directory = Path(directory)
        if (directory / MERGED_WEIGHTS).is_file():
            return _open_merged(directory)
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
        return cls(directory, config, text_tokens, files, merged=False)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors in the names of ``llm.pt``, mapped from the file where its format allows it.

        Raises:
            CheckpointError: the file is damaged or does not fit the configuration.
        """
        if self.merged:
            return read_merged(self.directory)
        return load_tensors(Layout(self.directory), "llm", load_config(self.directory))

    def names(self) -> dict[str, Path]:
        """The files by their names relative to the directory."""
        return {path.relative_to(self.directory).as_posix(): path for path in self.files}


def _open_merged(directory: Path) -> Source:
    path = directory / "config.json"
    vocabulary, config = recorded_vocabulary(path)
    files = (directory / MERGED_WEIGHTS, path, directory / SPARE_ROWS)
    return Source(directory, config, vocabulary.text_tokens, files, merged=True)
