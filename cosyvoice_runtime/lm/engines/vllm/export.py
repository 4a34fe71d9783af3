"""The speech LM as a directory that vLLM loads: its vocabulary is the speech rows alone.

Text, sos and task id are not in the vocabulary: prompts enter as embeddings, whose tables lie in a file of
their own. So the output head of CosyVoice2 has 6,592 rows in place of the 158,336 of the merged vocabulary
(`checkpoint.huggingface`). A head without a bias, as CosyVoice3's, gets one of zeros.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors, read_tensors
from cosyvoice_runtime.checkpoint.checksums import sha256_of
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.checkpoint.lm_rows import head_bias, outer_tensors, recorded
from cosyvoice_runtime.checkpoint.merged_vocabulary import SILENT
from cosyvoice_runtime.checkpoint.safetensors_file import write_safetensors
from cosyvoice_runtime.checkpoint.schema import Schema, llm_schema
from cosyvoice_runtime.checkpoint.tensors import TEXT_HEAD, TEXT_TABLE
from cosyvoice_runtime.errors import CheckpointError, EngineFileError, InvalidInput
from cosyvoice_runtime.lm.engines.vllm import ARCHITECTURE, KEY
from cosyvoice_runtime.lm.prompt import TABLES, PromptSegment, Table
from cosyvoice_runtime.manifest import Manifest, stale_reasons
from cosyvoice_runtime.settings.model import MANIFEST

DTYPES = ("bfloat16", "float16", "float32")
PREFIX = "llm.model."
"""Beginning of the names of Qwen2ForCausalLM in ``llm.pt``."""
FORMAT = 2
"""Raised whenever the same checkpoint gives another directory, which is then written anew."""
ROWS_MULTIPLE = 64
"""vLLM would pad its own rows to this (``DEFAULT_VOCAB_PADDING_SIZE``), without a bias to silence them."""
PROMPT_TABLES = Path("prompt", "tables.safetensors")
"""The prompts' tables have a directory of their own: vLLM reads all safetensors files next to the config."""


def not_finite_id(config: SpeechLMConfig) -> int:
    """Id of the padding that stands for broken logits of a sequence."""
    return config.speech_rows


def output_rows(config: SpeechLMConfig) -> int:
    """Rows of embedding and head; at least one is padding."""
    return -(-(config.speech_rows + 1) // ROWS_MULTIPLE) * ROWS_MULTIPLE


def export(checkpoint_dir: str | Path, out_dir: str | Path, dtype: str = "bfloat16") -> list[str]:
    """Write the directory unless it holds the same already.

    Args:
        out_dir: absent, empty, or with an earlier export, which is replaced.
        dtype: of the written weights.

    Returns:
        why it was written, a sentence each; empty if nothing had changed.

    Raises:
        CheckpointError: the checkpoint is damaged, or its speech LM no Qwen2.
        InvalidInput: an unknown dtype, or ``out_dir`` holds something else.
    """
    if dtype not in DTYPES:
        raise InvalidInput("dtype", dtype, f"one of {', '.join(DTYPES)}")
    layout, target = Layout(checkpoint_dir), Path(out_dir)
    layout.require_qwen2("an export for vLLM")
    wanted = wanted_manifest(layout, dtype)

    def write(building: Path) -> None:
        _write(building, layout, dtype)
        wanted.write(building)

    return renew_directory(target, lambda: stale_reasons(target, wanted), write, MANIFEST)


def wanted_manifest(layout: Layout, dtype: str) -> Manifest:
    """The manifest of a current export, which fits every GPU."""
    paths = (layout.weights("llm"), layout.config, layout.qwen2_config, *layout.adapter)
    sources = {path.relative_to(layout.directory).as_posix(): sha256_of(path) for path in paths}
    return Manifest(sources, tools={}, options={"format": FORMAT, "dtype": dtype})


def hf_config(config: SpeechLMConfig, dtype: str) -> dict[str, Any]:
    """The content of ``config.json``."""
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "rms_norm_eps": config.rms_norm_eps,
        # Transformers 5 reads the second, and has another default theta than Qwen2's.
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "max_position_embeddings": config.max_positions,
        "vocab_size": output_rows(config),
        "tie_word_embeddings": False,
        "torch_dtype": dtype,
        KEY: recorded(config),
    }


def model_tensors(config: SpeechLMConfig, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of each parameter in Hugging Face's names, from tensors named as in ``llm.pt``."""
    rows = output_rows(config)
    yield "model.embed_tokens.weight", _padded(tensors["speech_embedding.weight"], rows, 0.0)
    for name, tensor in tensors.items():
        if name.startswith(PREFIX) and name not in (TEXT_TABLE, TEXT_HEAD):
            yield name.removeprefix(PREFIX), tensor
    yield "lm_head.weight", _padded(tensors["llm_decoder.weight"], rows, 0.0)
    yield "lm_head.bias", _padded(head_bias(config, tensors), rows, SILENT)


def prompt_tensors(config: SpeechLMConfig, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Embedding tables by the names of `Table`, from tensors named as in ``llm.pt``."""
    outer = outer_tensors(config, tensors)
    for table in TABLES:
        yield table.value, outer[f"{table.value}_embedding.weight"]


def _write(directory: Path, layout: Layout, dtype: str) -> None:
    model = load_config(layout.directory)
    config, tensors = model.speech_lm, load_tensors(layout, "llm", model)
    published = {name: torch.empty(shape, device="meta") for name, shape in llm_schema(config).items()}
    tensors = {name: tensors[name] for name in published}  # The order in the file does not matter.
    kind = getattr(torch, dtype)
    (directory / PROMPT_TABLES).parent.mkdir()
    content = json.dumps(hf_config(config, dtype), indent=1)
    (directory / "config.json").write_text(content + "\n", encoding="utf-8")
    schema = _shapes(model_tensors(config, published))
    write_safetensors(directory / "model.safetensors", schema, kind, model_tensors(config, tensors))
    tables = _shapes(prompt_tensors(config, published))
    write_safetensors(directory / PROMPT_TABLES, tables, kind, prompt_tensors(config, tensors))


def _shapes(tensors: Iterator[tuple[str, Tensor]]) -> Schema:
    return {name: tuple(tensor.shape) for name, tensor in tensors}


def _padded(rows: Tensor, length: int, value: float) -> Tensor:
    padding = rows.new_full((length - len(rows), *rows.shape[1:]), value)
    return torch.cat([rows, padding])


class PromptTables:
    """The three embedding tables on the CPU, from which vLLM copies a prompt to the GPU itself."""

    def __init__(self, tables: dict[Table, Tensor]) -> None:
        self._tables = tables

    @classmethod
    def read(cls, directory: Path) -> PromptTables:
        """Read the tables of an export; raises `EngineFileError` if they are missing or damaged."""
        path = directory / PROMPT_TABLES
        try:
            tensors = read_tensors(path)
            return cls({table: tensors[table.value] for table in TABLES})
        except (CheckpointError, KeyError, OSError) as error:
            raise EngineFileError(f"{path}: missing or damaged: {error}") from error

    def embed(self, segments: Sequence[PromptSegment]) -> Tensor:
        """Embeddings [positions, hidden] of segments, in order."""
        return torch.cat(
            [self._tables[table][torch.as_tensor(ids, dtype=torch.int64)] for table, ids in segments]
        )
