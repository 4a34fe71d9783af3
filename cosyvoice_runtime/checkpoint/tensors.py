"""Weight files: read without running anything they hold, renamed, and compared with the architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout, Part
from cosyvoice_runtime.checkpoint.pt_file import read_pt
from cosyvoice_runtime.checkpoint.safetensors_file import read_safetensors
from cosyvoice_runtime.checkpoint.schema import Schema, part_schema
from cosyvoice_runtime.errors import CheckpointError

Tensors = dict[str, Array]
AnyTensor = TypeVar("AnyTensor")

DTYPES = ("float32", "float16", "bfloat16")
TEXT_TABLE = "llm.model.model.embed_tokens.weight"
TEXT_HEAD = "llm.model.lm_head.weight"
"""Tied to the text table and unused in speech synthesis, but part of every published ``llm.pt``."""


class Described(Protocol):
    """An array of numpy or a tensor of torch."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...


def load_tensors(layout: Layout, part: Part, config: ModelConfig) -> Tensors:
    """Tensors of one network as arrays, in the published names and the stored dtype.

    Files are memory-mapped where their format allows it. Weight-norm tensors under their old names
    (``weight_g``, ``weight_v``) and the ``generator.`` that a GAN trainer writes into ``hift.pt`` are
    renamed; an ``llm`` file without the tied text head gets it from the text table.

    Raises:
        CheckpointError: the file is missing, damaged or holds anything but tensors, or a tensor is
            missing, unknown, or of another shape or dtype than the architecture asks for.
    """
    path = layout.weights(part)
    tensors = published_names(part, read_tensors(path))
    problems = schema_problems(tensors, part_schema(part, config))
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise CheckpointError(f"{path}: {problems[0]}{more}")
    return tensors


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
    """Tensors of a ``.pt`` or ``.safetensors`` file, by the names in the file.

    Raises:
        CheckpointError: the file is damaged or holds anything but tensors.
    """
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    return _only_tensors(path, read_pt(path))


def published_names(part: Part, tensors: dict[str, AnyTensor]) -> dict[str, AnyTensor]:
    """The same tensors under the published names of ``part``."""
    if part == "hift":
        return {_published_vocoder_name(name): tensor for name, tensor in tensors.items()}
    if part == "llm" and TEXT_HEAD not in tensors and TEXT_TABLE in tensors:
        return {**tensors, TEXT_HEAD: tensors[TEXT_TABLE]}
    return tensors


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


def _published_vocoder_name(name: str) -> str:
    name = name.replace("generator.", "")
    for old, new in (("weight_g", "original0"), ("weight_v", "original1")):
        if name.endswith(f".{old}"):
            return f"{name.removesuffix(old)}parametrizations.weight.{new}"
    return name


def _only_tensors(path: Path, content: Any) -> Tensors:
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: refused: expected tensors by name, found {type(content).__name__}")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise CheckpointError(f"{path}: refused: entry {name!r} is {type(value).__name__}, not a tensor")
    return content
