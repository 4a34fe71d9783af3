"""Hubs of checkpoints as their clients show them, without a network."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub.hf_api import ModelInfo

from cosyvoice_runtime.checkpoint.layout import QWEN2_FILES
from cosyvoice_runtime.families import FAMILIES, Family

COMMIT = "ace7c47" + 33 * "0"


def read_of(family: Family) -> list[str]:
    """Files of a published checkpoint that are read."""
    qwen2 = [f"CosyVoice-BlankEN/{name}" for name in QWEN2_FILES if family.has_qwen2]
    return [
        family.config_file, "llm.pt", "flow.pt", "hift.pt", family.speech_tokenizer, "campplus.onnx",
        *([family.vocabulary] if family.has_qwen2 else []), *qwen2,
    ]  # fmt: skip


UNREAD = (
    "README.md", "config.json", "asset/dingding.png", "flow.decoder.estimator.fp32.onnx", "llm.rl.pt",
    "speech_tokenizer_v3.batch.onnx", "CosyVoice-BlankEN/model.safetensors",
    "CosyVoice-BlankEN/generation_config.json", "llm.text_encoder.fp16.zip",
)  # fmt: skip


class Hub:
    """Hugging Face as its client shows it.

    Args:
        published: gives the directory that a family is published as.

    Attributes:
        error: what is raised to whoever asks for a repository.
        download: fills the directory that it is given.
        files: name, size and SHA-256 of what the repository has.
        licence: as the card says it; None: there is no card.
        asked: repository and revision of each question and of each download.
        fetched: names that the last download was for.
    """

    def __init__(self, published: Callable[[str], Path]) -> None:
        self._published = published
        self.error: Exception | None = None
        self.download: Callable[[Path], None] = self.publish
        names = {*UNREAD, *(name for family in FAMILIES for name in read_of(family))}
        self.files: dict[str, tuple[int, str | None]] = dict.fromkeys(names, (1000, None))
        self.licence: str | None = "apache-2.0"
        self.asked: list[tuple[str, str | None]] = []
        self.fetched: list[str] = []

    def publish(self, out: Path, family: str = "cosyvoice2") -> None:
        """Copy a family's files beside what is there, as downloads do."""
        shutil.copytree(self._published(family), out, dirs_exist_ok=True)

    def repo_info(self, repository: str, revision: str | None, files_metadata: bool) -> Any:
        assert files_metadata
        self.asked.append((repository, revision))
        if self.error:
            raise self.error
        return ModelInfo(
            id=repository,
            sha=COMMIT,
            card_data=self.licence and {"license": self.licence},
            siblings=[
                {
                    "rfilename": name,
                    "size": size,
                    "lfs": sum_ and {"size": size, "sha256": sum_, "pointerSize": 1},
                }
                for name, (size, sum_) in self.files.items()
            ],
        )

    def snapshot_download(
        self, repository: str, revision: str, local_dir: Path, allow_patterns: list[str]
    ) -> None:
        self.asked.append((repository, revision))
        self.fetched = allow_patterns
        self.download(local_dir)


class ModelScope:
    """The other hub, by both modules of its client that are used."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def get_model_files(self, repository: str, revision: str | None, recursive: bool) -> list[dict[str, Any]]:
        assert recursive
        self.hub.asked.append((repository, revision))
        if self.hub.error:
            raise self.hub.error
        return [{"Path": name, "Size": size, "Sha256": sum_} for name, (size, sum_) in self.hub.files.items()]

    def snapshot_download(
        self, repository: str, revision: str | None, local_dir: str, allow_file_pattern: list[str]
    ) -> None:
        self.hub.snapshot_download(repository, str(revision), Path(local_dir), allow_file_pattern)


def breaking_off(error: Exception, *names: str) -> Callable[[Path], None]:
    """A download of a few files that ends with an error."""

    def download(out: Path) -> None:
        for name in names:
            (out / name).write_bytes(b"half of all")
        raise error

    return download
