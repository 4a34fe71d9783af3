"""The speech LM's files for ONNX Runtime: graph, weights, embeddings and manifest."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cosyvoice_runtime.checkpoint.checksums import damages, sha256_of
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.lm.prompt import TABLES, Table
from cosyvoice_runtime.manifest import Manifest, own_code, stale_reasons

MODEL, WEIGHTS = "model.onnx", "weights.bin"
PROMPT_MODEL, PROMPT_WEIGHTS = "prompt.onnx", "prompt.bin"
BLOCKS, ROWS = "int8", "int8_rows"
WEIGHT_FORMATS = ("float32", BLOCKS, ROWS)
"""Formats of the weights; in 8 bits, a block of a row shares a scale, or a whole row does."""
EMBEDDINGS, LAST, TOTAL, LOGITS = "embeddings", "last", "total", "logits"
"""Ports of the graph."""
QUERY = re.compile(r"query_(\d+)_(\d+)")
KINDS = ("keys", "values")
WRITERS = (
    "onnx/graph.py",
    "lm/onnx/export.py",
    "lm/onnx/rotary.py",
    "onnx/runtime_graph.py",
)
"""The modules on which the content of the files depends."""


def past_name(layer: int, kind: str) -> str:
    """Input of a layer's keys or values."""
    return f"past_{kind}_{layer}"


def present_name(layer: int, kind: str) -> str:
    """Output of a layer's keys or values."""
    return f"present_{kind}_{layer}"


def query_name(layer: int, head: int) -> str:
    """Output of a head's query of the last position."""
    return f"query_{layer}_{head}"


def heads_of(outputs: Iterable[str]) -> list[tuple[int, int]]:
    """Layer and head of each query among the outputs."""
    found = (QUERY.fullmatch(name) for name in outputs)
    return [(int(match[1]), int(match[2])) for match in found if match]


class LmFiles(NamedTuple):
    """The files in a directory."""

    directory: Path

    @property
    def model(self) -> Path:
        return self.directory / MODEL

    @property
    def weights(self) -> Path:
        return self.directory / WEIGHTS

    @property
    def prompt_model(self) -> Path:
        """The graph for prompts alone; absent where one graph serves steps and prompts."""
        return self.directory / PROMPT_MODEL

    @property
    def prompt_weights(self) -> Path:
        return self.directory / PROMPT_WEIGHTS

    def table(self, table: Table) -> Path:
        return self.directory / f"{table.value}_embedding.npy"

    @property
    def required(self) -> list[str]:
        """Names of the files that always exist."""
        return [path.name for path in (self.model, self.weights, *map(self.table, TABLES))]


def require_lm(checkpoint_dir: Path, directory: Path, weight_format: str) -> LmFiles:
    """The files, if they are undamaged and what an export would write now.

    Raises:
        EngineFileError: the files are missing, damaged or outdated; the text says why.
        CheckpointError: the checkpoint is incomplete.
    """
    wanted = wanted_manifest(Layout(checkpoint_dir), weight_format)
    reasons = why_not_usable(directory, wanted)
    if reasons:
        raise EngineFileError(
            f"the speech LM in {directory} can't be used: {'; '.join(reasons)}; stage 1 makes it"
        )
    return LmFiles(directory)


def wanted_manifest(layout: Layout, weight_format: str) -> Manifest:
    """The manifest of a current export, which fits every machine."""
    heads = () if layout.alignment_heads is None else (layout.alignment_heads,)
    paths = (layout.weights("llm"), layout.config, layout.qwen2_config, *layout.adapter, *heads)
    return Manifest(
        sources={path.relative_to(layout.directory).as_posix(): sha256_of(path) for path in paths},
        tools=own_code(WRITERS),
        options={"runtime": "onnx", "weight_format": weight_format},
    )


def why_not_usable(directory: Path, wanted: Manifest) -> list[str]:
    """Differences from the files that would be written now, a sentence each."""
    return stale_reasons(directory, wanted) or damages(directory, LmFiles(directory).required)
