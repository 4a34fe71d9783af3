"""Where the files of a published CosyVoice2-0.5B directory lie."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from cosyvoice_runtime.checkpoint.checksums import require_checksum
from cosyvoice_runtime.errors import CheckpointError

Part = Literal["llm", "flow", "hift"]
PARTS: tuple[Part, ...] = get_args(Part)
SPEAKERS = "spk2info.pt"
TEXT_FILES = ("config.json", "vocab.json", "merges.txt", "tokenizer_config.json")
FILES = (
    "cosyvoice2.yaml",
    *(f"{part}.{suffix}" for part in PARTS for suffix in ("safetensors", "pt")),
    "speech_tokenizer_v2.onnx",
    "campplus.onnx",
    *(f"CosyVoice-BlankEN/{name}" for name in TEXT_FILES),
    SPEAKERS,
)
"""Every file of a checkpoint that is read."""


class Layout:
    """Paths inside a checkpoint directory.

    Every method and property returns an existing file, or raises :class:`CheckpointError` naming the
    file and the directory. Where the directory has a list ``SHA256SUMS``, the file is what the list says.
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
        return self._file(SPEAKERS) if (self.directory / SPEAKERS).is_file() else None

    def names(self) -> list[str]:
        """Those of :data:`FILES` that are there."""
        return [name for name in FILES if (self.directory / name).is_file()]

    def _file(self, *names: str) -> Path:
        for name in names:
            path = self.directory / name
            if path.is_file():
                require_checksum(self.directory, name)
                return path
        if not self.directory.is_dir():
            raise CheckpointError(f"checkpoint directory {self.directory} does not exist")
        raise CheckpointError(f"{' or '.join(names)} is missing in checkpoint directory {self.directory}")
