"""A checkpoint directory in the published layout, written whole or not at all."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from cosyvoice_runtime.checkpoint import hyperpyyaml
from cosyvoice_runtime.checkpoint.checksums import write_checksums
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.fresh_directory import fresh_directory
from cosyvoice_runtime.checkpoint.layout import PARTS, Layout, Part
from cosyvoice_runtime.checkpoint.merged_vocabulary import special_token_ids
from cosyvoice_runtime.checkpoint.safetensors_file import write_safetensors
from cosyvoice_runtime.checkpoint.schema import part_schema
from cosyvoice_runtime.checkpoint.tensors import TEXT_HEAD, TEXT_TABLE
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import DEFAULT, FAMILIES, Family, load
from making.architecture import qwen2_json
from making.random_tensors import random_tensors
from making.speakers import write_speakers

Size = Literal["tiny", "full"]

TABLE_ROWS_MULTIPLE = 64
"""A text table has some spare rows above the tokenizer's length, like the published one."""

logger = logging.getLogger(__name__)


class MadeFamily(NamedTuple):
    """A family's sizes, and the content of its yaml file for an architecture."""

    family: Family
    tiny: ModelConfig
    full: ModelConfig
    yaml_tree: Callable[[ModelConfig], dict[str, Any]]


def made_family(name: str) -> MadeFamily:
    """Return the family of a name; an InvalidInput tells that there is none."""
    families = {family.name: family for family in FAMILIES}
    if name not in families:
        raise InvalidInput("family", name, f"expected one of {', '.join(families)}")
    family = families[name]
    return MadeFamily(family, *(load(f"{family.made}:{each}") for each in ("TINY", "FULL", "yaml_tree")))


def make_checkpoint(
    directory: str | Path,
    size: Size = "tiny",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    force: bool = False,
    family: str = DEFAULT.name,
) -> Path:
    """Write a complete checkpoint directory with random weights and return its path.

    Needs the extra ``make`` (``onnx``). The same arguments give the same bytes.

    Args:
        directory: where to; must be absent or empty unless ``force``.
        size: ``tiny`` runs in seconds on a CPU and is written as ``.pt``; ``full`` has the published
            sizes and is written as ``.safetensors``, tensor by tensor (2.6 GB in float32).
        seed: a number >= 0.
        dtype: of the weights: float32, float16 or bfloat16.
        force: replace what ``directory`` holds.
        family: name of one.

    Raises:
        InvalidInput: unknown size or family, negative seed, or a directory that is not empty.
    """
    if size not in ("tiny", "full"):
        raise InvalidInput("size", size, "expected 'tiny' or 'full'")
    if seed < 0:
        raise InvalidInput("seed", seed, "expected a number >= 0")
    made = made_family(family)
    target = Path(directory)
    with fresh_directory(target, force) as building:
        _write(building, made, size, seed, dtype)
        write_checksums(building, Layout(building).names())
    return target


def _write(directory: Path, made: MadeFamily, size: Size, seed: int, dtype: torch.dtype) -> None:
    family, config = made.family, made.tiny if size == "tiny" else made.full
    config = _write_text_files(directory, family, config, size)
    hyperpyyaml.write(directory / family.config_file, made.yaml_tree(config))
    _write_onnx(directory, family, config, seed)
    write_speakers(directory / "spk2info.pt", config, seed)
    for part in PARTS:
        logger.info("%s: %d tensors", part, len(part_schema(part, config)))
        if size == "tiny":
            _save_pickled(directory / f"{part}.pt", part, config, seed, dtype)
        else:
            _stream(directory / f"{part}.safetensors", part, config, seed, dtype)


def _write_text_files(directory: Path, family: Family, config: ModelConfig, size: Size) -> ModelConfig:
    """Tokenizer and Qwen2 configuration; returns the configuration with a text table that fits."""
    from making.tokenizer_files import write_ranks_file, write_tokenizer

    logger.info("tokenizer")
    vocabulary = directory / family.vocabulary
    vocabulary.parent.mkdir(exist_ok=True)
    vocabulary_size = write_tokenizer(vocabulary.parent) if family.has_qwen2 else write_ranks_file(vocabulary)
    if size == "tiny":
        rows = vocabulary_size + len(family.special_tokens)
        rows += -rows % TABLE_ROWS_MULTIPLE
        config = replace(config, speech_lm=replace(config.speech_lm, text_vocab_size=rows))
    if family.has_qwen2:
        content = qwen2_json(config.speech_lm, special_token_ids(vocabulary_size))
        path = vocabulary.with_name("config.json")
        path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return config


def _write_onnx(directory: Path, family: Family, config: ModelConfig, seed: int) -> None:
    from making import onnx_standins

    logger.info("onnx stand-ins")
    onnx_standins.write_speech_tokenizer(
        directory / family.speech_tokenizer, seed, family.speech_codes, family.log_mel_frames_per_token
    )
    onnx_standins.write_speaker_encoder(directory / "campplus.onnx", config.flow.speaker_dim, seed)


def _save_pickled(path: Path, part: Part, config: ModelConfig, seed: int, dtype: torch.dtype) -> None:
    """The published form: a state dict in which the text table and its head share memory."""
    tensors = {name: tensor.to(dtype) for name, tensor in random_tensors(part, config, seed)}
    if TEXT_TABLE in tensors:
        tensors[TEXT_HEAD] = tensors[TEXT_TABLE]
    torch.save(tensors, path)


def _stream(path: Path, part: Part, config: ModelConfig, seed: int, dtype: torch.dtype) -> None:
    """A safetensors file, which has no place for the tied text head."""
    schema = part_schema(part, config)
    schema.pop(TEXT_HEAD, None)
    write_safetensors(path, schema, dtype, random_tensors(part, config, seed))
