"""Weight files: read without running anything they hold, renamed, and compared with the architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.adapter import fold_adapter
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout, Part
from cosyvoice_runtime.checkpoint.pt_file import read_pt
from cosyvoice_runtime.checkpoint.safetensors_file import read_safetensors
from cosyvoice_runtime.checkpoint.schema import Schema, part_schema
from cosyvoice_runtime.checkpoint.trained_file import TEXT_HEAD as TEXT_HEAD
from cosyvoice_runtime.checkpoint.trained_file import TEXT_TABLE as TEXT_TABLE
from cosyvoice_runtime.checkpoint.trained_file import leaves_of, pick
from cosyvoice_runtime.errors import CheckpointError

Tensors = dict[str, Array]

DTYPES = ("float32", "float16", "bfloat16")


class Described(Protocol):
    """An array of numpy or a tensor of torch."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...


def load_tensors(layout: Layout, part: Part, config: ModelConfig) -> Tensors:
    """Tensors of one network as arrays, in the published names and the stored dtype; of float64 as float32.

    Files are memory-mapped where their format allows it. They may be as training writes them: see
    :mod:`~cosyvoice_runtime.checkpoint.trained_file`. An ``llm`` file with one of the tied text table and
    text head gets the other from it, and :mod:`~cosyvoice_runtime.checkpoint.adapter` is folded in.

    Raises:
        CheckpointError: the file is missing or damaged, holds two networks, or a tensor is missing,
            unknown, or of another shape or dtype than the architecture asks for.
    """
    path = layout.weights(part)
    schema = part_schema(part, config)
    tensors = network_tensors(path, part, schema)
    problems = schema_problems(tensors, schema)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise CheckpointError(f"{path}: {problems[0]}{more}")
    return fold_adapter(layout, tensors) if part == "llm" else tensors


def network_tensors(path: Path, part: Part, schema: Schema) -> Tensors:
    """Tensors of ``part`` in a file, under the published names, unchecked.

    Raises:
        CheckpointError: the file is damaged, or holds none or two of them.
    """
    return pick(path, part, schema, _content(path))


def load_speakers(layout: Layout) -> dict[str, Tensors]:
    """Registered speakers of the optional ``spk2info.pt``: tensors by speaker name; empty where absent.

    Raises:
        CheckpointError: the file is damaged or holds anything but tensors by speaker.
    """
    path = layout.speakers
    if path is None:
        return {}
    content = read_pt(path)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: refused: expected speakers by name, found {type(content).__name__}")
    if not all(isinstance(name, str) for name in content):
        raise CheckpointError(f"{path}: refused: a speaker's name is a number")
    return {name: _only_tensors(path, values) for name, values in content.items()}


def read_tensors(path: Path) -> Tensors:
    """Tensors by name of a ``.pt`` or ``.safetensors`` file; a CheckpointError if it holds anything else."""
    return _only_tensors(path, _content(path))


def all_tensors(path: Path) -> Tensors:
    """Every tensor of a file; a CheckpointError tells that it is damaged."""
    leaves = leaves_of(_content(path))
    return {leaf.name: leaf.value for leaf in leaves if isinstance(leaf.value, np.ndarray)}


def _content(path: Path) -> Any:
    return read_safetensors(path) if path.suffix == ".safetensors" else read_pt(path)


def schema_problems(tensors: Mapping[str, Described], schema: Schema) -> list[str]:
    """One line per tensor that is missing, unknown, or of another shape or dtype."""
    problems = [f"tensor {name} is missing" for name in schema if name not in tensors]
    for name, tensor in tensors.items():
        if name not in schema:
            problems.append(f"tensor {name} is unknown to this architecture")
        elif tuple(tensor.shape) != schema[name]:
            problems.append(f"tensor {name} has shape {tuple(tensor.shape)}, expected {schema[name]}")
        elif (dtype := str(tensor.dtype).removeprefix("torch.")) not in DTYPES:
            problems.append(f"tensor {name} has dtype {dtype}, expected float32, float16 or bfloat16")
    return problems


def _only_tensors(path: Path, content: Any) -> Tensors:
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: refused: expected tensors by name, found {type(content).__name__}")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise CheckpointError(f"{path}: refused: entry {name!r} is {type(value).__name__}, not a tensor")
    return content
