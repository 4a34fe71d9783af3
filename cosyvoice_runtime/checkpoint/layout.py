"""Paths of the files of a published directory."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from cosyvoice_runtime.checkpoint.checksums import read_checksums, require_checksum, warn_once
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families import DEFAULT, FAMILIES, Family

Part = Literal["llm", "flow", "hift"]
PARTS: tuple[Part, ...] = get_args(Part)
SPEAKERS = "spk2info.pt"
SPEAKER_ENCODER = "campplus.onnx"
WEIGHT_FORMATS = ("safetensors", "pt")
ADAPTER = ("lora/adapter_config.json", "lora/adapter_model.safetensors")
"""An adapter of the speech LM, as the package peft names its files."""
FLOW_SCHEDULE = "flow_schedule.json"
ALIGNMENT_HEADS = "alignment_heads.json"
VOICE_ADAPTERS = "adapters"
"""Folder with a folder of such files for each adapter that voices name."""
QWEN2_FILES = ("config.json", "merges.txt", "tokenizer_config.json")


class Layout:
    """Paths inside a checkpoint directory.

    Every method and property returns an existing file, or raises :class:`CheckpointError` naming the
    file and the directory. Where the directory has a list ``SHA256SUMS``, the file is what the list says.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    @property
    def family(self) -> Family:
        """The family of the configuration file, the default one without a file; a CheckpointError for
        several."""
        return next(iter(self._families()), DEFAULT)

    def require_qwen2(self, what: str) -> None:
        """Refuse a checkpoint whose speech LM is no Qwen2.

        Args:
            what: is made of one.

        Raises:
            CheckpointError: it is of such a family.
        """
        if not self.family.has_qwen2:
            raise CheckpointError(
                f"checkpoint directory {self.directory} is of {self.family.name}, whose speech LM is no "
                f"Qwen2; {what} is made of one"
            )

    @property
    def config(self) -> Path:
        return self._file(*(family.config_file for family in self._families() or FAMILIES[::-1]))

    def check_ahead(self, *parts: Part) -> None:
        """Begin to hold weights against their checksums, in a thread, while others import and compute.

        Gigabytes take seconds. What is wrong with a file hears whoever asks for it.
        """

        def check() -> None:
            for part in parts:
                with suppress(CheckpointError):
                    self.weights(part)

        threading.Thread(target=check, name="checksums", daemon=True).start()

    def weights(self, part: Part) -> Path:
        """``<part>.safetensors`` where present, else ``<part>.pt``; of both, a line of the log tells."""
        names = _weight_names(part)
        if all((self.directory / name).is_file() for name in names):
            warn_once(f"{self.directory} has {' and '.join(names)}: the first is read")
        return self._file(*names)

    @property
    def adapter(self) -> tuple[Path, ...]:
        """Configuration and weights of the speech LM's optional adapter; none where the folder is absent."""
        folder = self.directory / ADAPTER[0].partition("/")[0]
        return tuple(self._file(name) for name in ADAPTER) if folder.is_dir() else ()

    @property
    def voice_adapters(self) -> dict[str, tuple[Path, ...]]:
        """Configuration and weights of each adapter that voices may name, by name."""
        return {
            name.split("/")[1]: (self._file(name), self._file(weights))
            for name, weights in self._voice_adapter_files()
        }

    @property
    def speech_tokenizer(self) -> Path:
        return self._file(self.family.speech_tokenizer)

    @property
    def speaker_encoder(self) -> Path:
        return self._file(SPEAKER_ENCODER)

    @property
    def qwen2_config(self) -> Path:
        return self._file("CosyVoice-BlankEN/config.json")

    @property
    def vocabulary(self) -> Path:
        return self._file(self.family.vocabulary)

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

    @property
    def flow_schedule(self) -> Path | None:
        """The optional file of a distilled flow's steps; None where absent."""
        return self._file(FLOW_SCHEDULE) if (self.directory / FLOW_SCHEDULE).is_file() else None

    @property
    def alignment_heads(self) -> Path | None:
        """The optional file of the speech LM's heads that follow the text; None where absent."""
        return self._file(ALIGNMENT_HEADS) if (self.directory / ALIGNMENT_HEADS).is_file() else None

    def names(self) -> list[str]:
        """Files that are read of a checkpoint of any family, and are there."""
        of_voices = [name for names in self._voice_adapter_files() for name in names]
        return [name for name in (*read_files(), *of_voices) if (self.directory / name).is_file()]

    def missing(self) -> list[str]:
        """List missing files: those that a checkpoint of the family must have, and those in ``SHA256SUMS``.

        Weights, which come in one of two formats, are named as ``llm.safetensors or llm.pt``.

        Raises:
            CheckpointError: the directory has the configuration of several families, or the list is damaged.
        """
        alternatives = needed_files(self.family)
        needed = {name for names in alternatives for name in names}
        alternatives += [(name,) for name in read_checksums(self.directory) if name not in needed]
        return [" or ".join(names) for names in alternatives if not self._any_of(names)]

    def _voice_adapter_files(self) -> list[tuple[str, str]]:
        folders = sorted((self.directory / VOICE_ADAPTERS).glob("[!.]*/"))
        config, weights = (Path(name).name for name in ADAPTER)
        of = [f"{VOICE_ADAPTERS}/{folder.name}" for folder in folders if folder.is_dir()]
        return [(f"{folder}/{config}", f"{folder}/{weights}") for folder in of]

    def _any_of(self, names: tuple[str, ...]) -> bool:
        return any((self.directory / name).is_file() for name in names)

    def _families(self) -> list[Family]:
        found = [family for family in FAMILIES if (self.directory / family.config_file).is_file()]
        if len(found) > 1:
            names = " and ".join(family.config_file for family in found)
            raise CheckpointError(f"checkpoint directory {self.directory} has {names}: only one may be there")
        return found

    def _file(self, *names: str) -> Path:
        for name in names:
            path = self.directory / name
            if path.is_file():
                require_checksum(self.directory, name)
                return path
        if not self.directory.is_dir():
            raise CheckpointError(f"checkpoint directory {self.directory} does not exist")
        for name in names:
            if (self.directory / name).is_dir():
                raise CheckpointError(
                    f"{self.directory / name} is a directory; a file is read under this name"
                )
        raise CheckpointError(f"{' or '.join(names)} is missing in checkpoint directory {self.directory}")


def read_files() -> tuple[str, ...]:
    """Names of the files that are read of a checkpoint of any family."""
    return (
        *(family.config_file for family in FAMILIES),
        *(name for part in PARTS for name in _weight_names(part)),
        *(family.speech_tokenizer for family in FAMILIES),
        SPEAKER_ENCODER,
        *dict.fromkeys(family.vocabulary for family in FAMILIES),
        *(f"CosyVoice-BlankEN/{name}" for name in QWEN2_FILES),
        SPEAKERS,
        *ADAPTER,
        FLOW_SCHEDULE,
        ALIGNMENT_HEADS,
    )


def needed_files(family: Family) -> list[tuple[str, ...]]:
    """Names of the files that a family's checkpoint must have; of several in a tuple, one."""
    return [
        (family.config_file,),
        *map(_weight_names, PARTS),
        (family.speech_tokenizer,),
        (SPEAKER_ENCODER,),
        (family.vocabulary,),
        *((f"CosyVoice-BlankEN/{name}",) for name in QWEN2_FILES if family.has_qwen2),
    ]


def _weight_names(part: Part) -> tuple[str, ...]:
    return tuple(f"{part}.{suffix}" for suffix in WEIGHT_FORMATS)
