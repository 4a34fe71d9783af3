"""From a checkpoint to the speech LM's files for ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from cosyvoice_runtime.checkpoint.checksums import write_checksums
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_tensors
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.onnx.files import WEIGHT_FORMATS, LmFiles, wanted_manifest, why_not_usable
from cosyvoice_runtime.lm.onnx.graph import Tensors, matrix_bytes, write_graph
from cosyvoice_runtime.lm.prompt import TABLES
from cosyvoice_runtime.lm.published_tensors import outer_tensors
from cosyvoice_runtime.settings.model import MANIFEST

PROMPT_BYTES = 64 << 20
"""Most memory for a second copy of the matrices: prompts are faster in float32, and exact."""


def export_lm(checkpoint_dir: Path, directory: Path, weight_format: str) -> list[str]:
    """Write the directory unless it holds the same already, undamaged.

    Args:
        directory: absent, empty, or with an earlier export, which is replaced.
        weight_format: one of WEIGHT_FORMATS.

    Returns:
        why it was written, a sentence each; empty if nothing had changed.

    Raises:
        CheckpointError: the checkpoint is damaged, or of sizes that the runtime can't take.
        InvalidInput: an unknown format, or ``directory`` holds something else.
    """
    if weight_format not in WEIGHT_FORMATS:
        raise InvalidInput("weight_format", weight_format, f"one of {', '.join(WEIGHT_FORMATS)}")
    wanted = wanted_manifest(Layout(checkpoint_dir), weight_format)

    def write(building: Path) -> None:
        config = load_config(checkpoint_dir)
        tensors = FloatArrays(load_tensors(Layout(checkpoint_dir), "llm", config))
        write_lm(config.speech_lm, tensors, LmFiles(building), weight_format)
        wanted.write(building)

    return renew_directory(directory, lambda: why_not_usable(directory, wanted), write, MANIFEST)


class FloatArrays(Mapping[str, npt.NDArray[np.float32]]):
    """Tensors of a checkpoint as float32, each widened when it is asked for."""

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        return self._tensors[name].astype(np.float32, copy=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def write_lm(config: SpeechLMConfig, tensors: Tensors, files: LmFiles, weight_format: str) -> None:
    """Write the files of a network, given by its published tensors.

    Raises:
        CheckpointError: as `write_graph`.
    """
    graphs = [(files.model, files.weights, weight_format)]
    if weight_format != "float32" and matrix_bytes(config) <= PROMPT_BYTES:
        graphs.append((files.prompt_model, files.prompt_weights, "float32"))
    for model, weights, each in graphs:
        with weights.open("wb") as file:
            onnx.save(write_graph(config, tensors, each, file), model)
    outer = outer_tensors(config, tensors)
    for table in TABLES:
        rows = outer[f"{table.value}_embedding.weight"]
        np.save(files.table(table), rows)
    write_checksums(files.directory, [path.name for path in files.directory.iterdir()])
