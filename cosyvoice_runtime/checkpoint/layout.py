"""Where the files of a published CosyVoice2-0.5B directory lie."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from cosyvoice_runtime.errors import CheckpointError

Part = Literal["llm", "flow", "hift"]
PARTS: tuple[Part, ...] = get_args(Part)


class Layout:
    """Paths inside a checkpoint directory.

    Every method and property returns an existing file, or raises :class:`CheckpointError` naming the
    file and the directory.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    @property
    def config(self) -> Path:
        return self._file("cosyvoice2.yaml")

    def weights(self, part: Part) -> Path:
        """``<part>.safetensors`` where present, else ``<part>.pt``."""
        return self._file(f"{part}.safetensors", f"{part}.pt")

    @property
    def speech_tokenizer(self) -> Path:
        return self._file("speech_tokenizer_v2.onnx")

    @property
    def speaker_encoder(self) -> Path:
        return self._file("campplus.onnx")

    @property
    def qwen2_config(self) -> Path:
        return self._file("CosyVoice-BlankEN/config.json")

    @property
    def vocabulary(self) -> Path:
        return self._file("CosyVoice-BlankEN/vocab.json")

    @property
    def merges(self) -> Path:
        return self._file("CosyVoice-BlankEN/merges.txt")

    @property
    def tokenizer_config(self) -> Path:
        return self._file("CosyVoice-BlankEN/tokenizer_config.json")

    @property
    def speakers(self) -> Path | None:
        """The optional file of registered speakers; None where absent."""
        path = self.directory / "spk2info.pt"
        return path if path.is_file() else None

    def _file(self, *names: str) -> Path:
        for name in names:
            path = self.directory / name
            if path.is_file():
                return path
        if not self.directory.is_dir():
            raise CheckpointError(f"checkpoint directory {self.directory} does not exist")
        raise CheckpointError(f"{' or '.join(names)} is missing in checkpoint directory {self.directory}")
