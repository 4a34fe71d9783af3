"""Conversion of the speech LM to a TensorRT-LLM checkpoint: config.json and a safetensors file a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.checksums import sha256_of
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.checkpoint.safetensors_file import write_safetensors
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.engines.tensorrt_llm.build import BIAS_FILE
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import (
    QUANT_ALGOS,
    EngineVocabulary,
    Source,
    check_tp_size,
    engine_config,
    output_bias,
    rank_schema,
    rank_tensors,
)
from cosyvoice_runtime.lm.engines.tensorrt_llm.fp8 import (
    fp8_dtypes,
    fp8_schema,
    fp8_tensors,
    measured_scales,
)
from cosyvoice_runtime.manifest import Manifest, stale_reasons
from cosyvoice_runtime.settings.model import MANIFEST

DTYPES = ("bfloat16", "float16", "float32")
FORMAT = 2
"""Raised whenever the same source and options give another checkpoint, so that engines are built anew."""
BIAS_NAME = "embedding_bias"

Progress = Callable[[str, int, int], None]
"""A function that is called with each written tensor's name, its number from 1, and the number of all."""


@dataclass(frozen=True)
class ConversionOptions:
    """Options of a conversion.

    Attributes:
        layout: layout of the vocabulary, see :class:`EngineVocabulary`.
        dtype: type of weights and activations.
        tp_size: GPUs that share the network.
        weight_only: ``int8`` or ``int4``: the matrices of the layers are quantised when the engine is built,
            and written in ``dtype``. ``fp8``: they are quantised here, and the engine quantises what they are
            multiplied with.

    Raises:
        InvalidInput: another value.
    """

    layout: str = "merged"
    dtype: str = "bfloat16"
    tp_size: int = 1
    weight_only: str = "none"

    def __post_init__(self) -> None:
        for field, accepted in (("dtype", DTYPES), ("weight_only", tuple(QUANT_ALGOS))):
            if getattr(self, field) not in accepted:
                raise InvalidInput(field, getattr(self, field), f"one of {', '.join(accepted)}")


def convert(
    source_dir: str | Path,
    out_dir: str | Path,
    options: ConversionOptions,
    progress: Progress = lambda _name, _number, _total: None,
) -> list[str]:
    """Write a checkpoint unless ``out_dir`` holds the same already.

    Args:
        source_dir: a checkpoint directory.
        out_dir: absent, empty, or with an earlier checkpoint of this function, which is replaced.

    Returns:
        why it was written, a sentence each; empty if nothing had changed.

    Raises:
        CheckpointError: the source is damaged.
        InvalidInput: the options don't fit the network, or ``out_dir`` holds something else.
    """
    return convert_source(Source.open(source_dir), Path(out_dir), options, progress)


def convert_source(
    source: Source,
    target: Path,
    options: ConversionOptions,
    progress: Progress = lambda _name, _number, _total: None,
) -> list[str]:
    """Write a checkpoint of weights that have been looked at, as :func:`convert`."""
    check_tp_size(source.config, options.tp_size)
    vocabulary = EngineVocabulary.of(options.layout, source.text_tokens, source.config)
    wanted = _manifest(source, options, vocabulary)

    def write(building: Path) -> None:
        _write(building, source, vocabulary, options, progress)
        wanted.write(building)

    return renew_directory(target, lambda: stale_reasons(target, wanted), write, MANIFEST)


def _manifest(source: Source, options: ConversionOptions, vocabulary: EngineVocabulary) -> Manifest:
    return Manifest(
        sources={name: sha256_of(path) for name, path in source.names().items()},
        tools={},
        options={"format": FORMAT, **asdict(options), **asdict(vocabulary)},
    )


def _write(
    directory: Path,
    source: Source,
    vocabulary: EngineVocabulary,
    options: ConversionOptions,
    progress: Progress,
) -> None:
    config = engine_config(source.config, vocabulary, options.dtype, options.tp_size, options.weight_only)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = source.tensors()
    if vocabulary.layout == "merged":
        _write_bias(directory / BIAS_FILE, source.config, vocabulary, tensors)
    schema = rank_schema(source.config, vocabulary, options.tp_size)
    in_fp8 = options.weight_only == "fp8"
    scales = measured_scales(source, tensors) if in_fp8 else {}
    schema, dtypes = (fp8_schema(schema), fp8_dtypes(schema)) if in_fp8 else (schema, {})
    dtype = getattr(torch, options.dtype)
    total = len(schema) * options.tp_size
    for rank in range(options.tp_size):
        shares = rank_tensors(source.config, vocabulary, tensors, rank, options.tp_size)
        told = _telling(fp8_tensors(shares, scales), progress, rank * len(schema), total)
        write_safetensors(directory / f"rank{rank}.safetensors", schema, dtype, told, dtypes)


def _write_bias(
    path: Path, config: SpeechLMConfig, vocabulary: EngineVocabulary, tensors: dict[str, Tensor]
) -> None:
    """Write the bias in float32, the type of the logits, which TensorRT-LLM requires of it."""
    bias = output_bias(config, vocabulary, tensors)
    write_safetensors(path, {BIAS_NAME: tuple(bias.shape)}, torch.float32, [(BIAS_NAME, bias)])


def _telling(
    tensors: Iterator[tuple[str, Tensor]], progress: Progress, before: int, total: int
) -> Iterator[tuple[str, Tensor]]:
    for number, (name, tensor) in enumerate(tensors, before + 1):
        progress(name, number, total)
        yield name, tensor
