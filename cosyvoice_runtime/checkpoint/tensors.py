"""Weight files: read without running anything they hold, renamed, and compared with the architecture."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout, Part
from cosyvoice_runtime.checkpoint.schema import Schema, part_schema
from cosyvoice_runtime.errors import CheckpointError

Tensors = dict[str, torch.Tensor]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TEXT_TABLE = "llm.model.model.embed_tokens.weight"
TEXT_HEAD = "llm.model.lm_head.weight"
"""Tied to the text table and unused in speech synthesis, but part of every published ``llm.pt``."""


def load_tensors(layout: Layout, part: Part, config: ModelConfig) -> Tensors:
    """Tensors of one network on the CPU, in the published names and the stored dtype.

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
    content = _unpickle(path)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: refused: expected speakers by name, found {type(content).__name__}")
    return {name: _only_tensors(path, values) for name, values in content.items()}


def read_tensors(path: Path) -> Tensors:
    """Tensors of a ``.pt`` or ``.safetensors`` file, by the names in the file.

    Raises:
        CheckpointError: the file is damaged or holds anything but tensors.
    """
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(f"{path}: truncated or damaged: {error}") from error
    return _only_tensors(path, _unpickle(path))


def published_names(part: Part, tensors: Tensors) -> Tensors:
    """The same tensors under the published names of ``part``."""
    if part == "hift":
        return {_published_vocoder_name(name): tensor for name, tensor in tensors.items()}
    if part == "llm" and TEXT_HEAD not in tensors and TEXT_TABLE in tensors:
        return {**tensors, TEXT_HEAD: tensors[TEXT_TABLE]}
    return tensors


def schema_problems(tensors: Mapping[str, torch.Tensor], schema: Schema) -> list[str]:
    """One line per tensor that is missing, unknown, or of another shape or dtype."""
    problems = [f"tensor {name} is missing" for name in schema if name not in tensors]
    for name, tensor in tensors.items():
        if name not in schema:
            problems.append(f"tensor {name} is unknown to this architecture")
        elif tuple(tensor.shape) != schema[name]:
            problems.append(f"tensor {name} has shape {tuple(tensor.shape)}, expected {schema[name]}")
        elif tensor.dtype not in DTYPES:
            problems.append(f"tensor {name} has dtype {tensor.dtype}, expected float32, float16 or bfloat16")
    return problems


def _published_vocoder_name(name: str) -> str:
    name = name.replace("generator.", "")
    for old, new in (("weight_g", "original0"), ("weight_v", "original1")):
        if name.endswith(f".{old}"):
            return f"{name.removesuffix(old)}parametrizations.weight.{new}"
    return name


def _unpickle(path: Path) -> Any:
    try:
        # Files older than torch 1.6 are bare pickles, which cannot be mapped.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        if "GLOBAL" in str(error):  # the pickle instruction that fetches a class or function
            raise CheckpointError(f"{path}: refused: holds code or objects other than tensors") from error
        raise CheckpointError(f"{path}: truncated or damaged: {error}") from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise CheckpointError(f"{path}: truncated or damaged: {error}") from error


def _only_tensors(path: Path, content: Any) -> Tensors:
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: refused: expected tensors by name, found {type(content).__name__}")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise CheckpointError(f"{path}: refused: entry {name!r} is {type(value).__name__}, not a tensor")
    return content
