"""TensorRT-LLM checkpoints: their weights' source, vocabulary, ``config.json``, and each GPU's tensors.

Names and layout: ``docs/source/architecture/checkpoint.md`` and ``models/qwen`` of TensorRT-LLM (2025); keys
of ``QWenConfig`` and ``PretrainedConfig``. Matrices are (out, in). A rank's ``qkv`` is its rows of q, then k,
then v. TensorRT-LLM's ``mlp.fc`` is the gate projection and its ``mlp.gate`` the up projection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.lm_rows import control_table, head_bias
from cosyvoice_runtime.checkpoint.merged_vocabulary import SILENT, MergedVocabulary, tokenizer_length
from cosyvoice_runtime.checkpoint.schema import Schema, llm_schema
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import TEXT_TABLE
from cosyvoice_runtime.errors import CheckpointError, InvalidInput

LAYOUTS = ("merged", "speech")
OUTPUT_ROWS_MULTIPLE = 64
"""Rows of the speech layout are padded to a multiple of it, for aligned products: 6,564 to 6,592."""


@dataclass(frozen=True)
class EngineVocabulary:
    """Ids that an engine reads and emits.

    Attributes:
        layout: ``merged`` reads and emits the ids of :class:`MergedVocabulary`, as NVIDIA's stock model
            does. ``speech`` emits only speech: its ids are the speech rows, padding, then the text ids, sos
            and the task id, which are read but can't be emitted.
        text_tokens: text ids in use.
        speech_rows: speech codes and stop ids.
        num_stops: how many of them end the speech; they are the last.
        end_row: the stop id that is the end of speech.

    Raises:
        InvalidInput: another layout.
    """

    layout: str
    text_tokens: int
    speech_rows: int
    num_stops: int
    end_row: int

    @classmethod
    def of(cls, layout: str, text_tokens: int, config: SpeechLMConfig) -> EngineVocabulary:
        """The vocabulary of a checkpoint."""
        return cls(layout, text_tokens, config.speech_rows, len(config.stop_ids), config.eos_id)

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise InvalidInput("layout", self.layout, f"one of {', '.join(LAYOUTS)}")

    @property
    def output_rows(self) -> int:
        """Rows of the output head, padding included: TensorRT-LLM's ``vocab_size``."""
        if self._merged is not None:
            return self._merged.rows
        return self.speech_rows + -self.speech_rows % OUTPUT_ROWS_MULTIPLE

    @property
    def embedding_rows(self) -> int:
        """Rows of the input embedding."""
        return self.output_rows if self._merged is not None else self.task_id + 1

    @property
    def text_offset(self) -> int:
        return 0 if self._merged is not None else self.output_rows

    @property
    def speech_offset(self) -> int:
        return 0 if self._merged is None else self._merged.speech_offset

    @property
    def sos_id(self) -> int:
        return self.text_offset + self.text_tokens if self._merged is None else self._merged.sos_id

    @property
    def task_id(self) -> int:
        return self.sos_id + 1

    @property
    def speech(self) -> slice:
        """Rows of codes and stop ids in embedding and head."""
        return slice(self.speech_offset, self.speech_offset + self.speech_rows)

    @property
    def stop_ids(self) -> range:
        """Ids that end the speech."""
        return range(self.speech.stop - self.num_stops, self.speech.stop)

    @property
    def end_id(self) -> int:
        """The stop id that is the end of speech."""
        return self.speech_offset + self.end_row

    def input_ids(self, text: Iterable[int], speech: Iterable[int]) -> list[int]:
        """``[sos] text [task_id] speech``, from text ids and speech codes within their tables."""
        return [
            self.sos_id,
            *(self.text_offset + token for token in text),
            self.task_id,
            *(self.speech_offset + code for code in speech),
        ]

    @property
    def _merged(self) -> MergedVocabulary | None:
        if self.layout != "merged":
            return None
        return MergedVocabulary(self.text_tokens, self.speech_rows, self.num_stops)


@dataclass(frozen=True)
class Source:
    """Weights that are converted; the converted ones depend on ``files``."""

    directory: Path
    config: SpeechLMConfig
    text_tokens: int
    files: tuple[Path, ...]

    @classmethod
    def open(cls, directory: str | Path) -> Source:
        """Look at a directory without reading weights.

        Raises:
            CheckpointError: a file is missing or damaged, or the speech LM is no Qwen2.
        """
        directory = Path(directory)
        layout = Layout(directory)
        layout.require_qwen2("a checkpoint of TensorRT-LLM")
        files = (
            layout.weights("llm"), layout.config, layout.qwen2_config, layout.vocabulary, *layout.adapter
        )  # fmt: skip
        config = load_config(directory).speech_lm
        text_tokens = tokenizer_length(layout)
        if text_tokens > config.text_vocab_size:
            raise CheckpointError(
                f"{layout.vocabulary}: {text_tokens} tokens, but {TEXT_TABLE} has "
                f"{config.text_vocab_size} rows"
            )
        return cls(directory, config, text_tokens, files)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors in the names of ``llm.pt``, mapped from the file where its format allows it.

        Raises:
            CheckpointError: the file is damaged or does not fit the configuration.
        """
        return load_tensors(Layout(self.directory), "llm", load_config(self.directory))

    def names(self) -> dict[str, Path]:
        """The files by their names relative to the directory."""
        return {path.relative_to(self.directory).as_posix(): path for path in self.files}


QUANT_ALGOS = {"none": None, "int8": "W8A16", "int4": "W4A16", "fp8": "FP8"}
"""TensorRT-LLM's names of quantisation (``QuantAlgo`` in ``tensorrt_llm/quantization/mode.py``)."""


def engine_config(
    config: SpeechLMConfig, vocabulary: EngineVocabulary, dtype: str, tp_size: int, weight_only: str
) -> dict[str, Any]:
    """The content of ``config.json``, for all GPUs.

    This library's model class alone reads ``embedding_rows``, where the embedding is longer than the head.
    """
    content: dict[str, Any] = {
        "architecture": "Qwen2ForCausalLM",
        "dtype": dtype,
        "logits_dtype": "float32",
        "vocab_size": vocabulary.output_rows,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_size": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "hidden_act": "silu",
        "norm_epsilon": config.rms_norm_eps,
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": config.max_positions,
        "rotary_base": config.rope_theta,
        "rotary_scaling": None,
        "attn_bias": True,
        "mlp_bias": False,
        "qwen_type": "qwen2",
        "use_logn_attn": False,
        "disable_weight_only_quant_plugin": False,
        "tie_word_embeddings": False,
        "use_parallel_embedding": False,
        "embedding_sharding_dim": 0,
        "qk_layernorm": False,
        "runtime_defaults": None,
        "mapping": {"world_size": tp_size, "tp_size": tp_size, "pp_size": 1},
        "quantization": {"quant_algo": QUANT_ALGOS[weight_only], "kv_cache_quant_algo": None},
    }
    if vocabulary.embedding_rows != vocabulary.output_rows:
        content["embedding_rows"] = vocabulary.embedding_rows
    return content


BACKBONE = "llm.model.model"
EMBEDDING, FINAL_NORM = "transformer.vocab_embedding.weight", "transformer.ln_f.weight"
HEAD, HEAD_BIAS = "lm_head.weight", "lm_head.bias"
ROWS, COLUMNS = 0, 1


class Parameter(NamedTuple):
    """A parameter of a layer: published tensors joined row-wise, cut along ``axis`` (None: replicated)."""

    sources: tuple[str, ...]
    axis: int | None


LAYER: dict[str, Parameter] = {
    "attention.qkv.weight": Parameter(tuple(f"self_attn.{x}_proj.weight" for x in "qkv"), ROWS),
    "attention.qkv.bias": Parameter(tuple(f"self_attn.{x}_proj.bias" for x in "qkv"), ROWS),
    "attention.dense.weight": Parameter(("self_attn.o_proj.weight",), COLUMNS),
    "mlp.fc.weight": Parameter(("mlp.gate_proj.weight",), ROWS),
    "mlp.gate.weight": Parameter(("mlp.up_proj.weight",), ROWS),
    "mlp.proj.weight": Parameter(("mlp.down_proj.weight",), COLUMNS),
    "input_layernorm.weight": Parameter(("input_layernorm.weight",), None),
    "post_layernorm.weight": Parameter(("post_attention_layernorm.weight",), None),
}
QUANTISED = ("qkv", "dense", "fc", "gate", "proj")
"""Last names of the matrices that weight-only quantisation changes."""


def check_tp_size(config: SpeechLMConfig, tp_size: int) -> None:
    """Raise `InvalidInput` if this many GPUs can't share the network's heads evenly."""
    shared = (config.num_heads, config.num_kv_heads, config.intermediate_size)
    sizes = [size for size in range(1, config.num_kv_heads + 1) if not any(width % size for width in shared)]
    if tp_size not in sizes:
        limit = f"one of {', '.join(map(str, sizes))}: every GPU has as many heads"
        raise InvalidInput("tp_size", tp_size, limit)


def rank_tensors(
    config: SpeechLMConfig,
    vocabulary: EngineVocabulary,
    tensors: Mapping[str, Tensor],
    rank: int,
    tp_size: int,
) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of every parameter on GPU ``rank`` of ``tp_size``, from tensors named as in ``llm.pt``.

    Embedding and norms are on every GPU. The head has a bias in the speech layout only: TensorRT-LLM's stock
    Qwen2 has none.
    """
    yield EMBEDDING, embedding_table(config, vocabulary, tensors)
    for layer in range(config.num_layers):
        for name, parameter in LAYER.items():
            pieces = [tensors[f"{BACKBONE}.layers.{layer}.{source}"] for source in parameter.sources]
            yield f"transformer.layers.{layer}.{name}", _share(pieces, parameter.axis, rank, tp_size)
    yield FINAL_NORM, tensors[f"{BACKBONE}.norm.weight"]
    yield HEAD, _share([head_weight(vocabulary, tensors)], ROWS, rank, tp_size)
    if vocabulary.layout == "speech":
        yield HEAD_BIAS, _share([output_bias(config, vocabulary, tensors)], ROWS, rank, tp_size)


def rank_schema(config: SpeechLMConfig, vocabulary: EngineVocabulary, tp_size: int) -> Schema:
    """Names and shapes on each GPU; 195 of them at full size in the merged layout."""
    published = {name: torch.empty(shape, device="meta") for name, shape in llm_schema(config).items()}
    parameters = rank_tensors(config, vocabulary, published, 0, tp_size)
    return {name: tuple(tensor.shape) for name, tensor in parameters}


def quantised_schema(schema: Schema, bits: int) -> Schema:
    """Names and shapes after ``trtllm-build`` has quantised the weights to ``bits`` bits.

    A quantised matrix is (in, out), several weights to a byte, with one scale for each output.
    """
    changed: Schema = {}
    for name, shape in schema.items():
        module, _, kind = name.rpartition(".")
        if kind == "weight" and module.rpartition(".")[2] in QUANTISED:
            out_features, in_features = shape
            changed[name] = (in_features, out_features * bits // 8)
            changed[f"{module}.per_channel_scale"] = (out_features,)
        else:
            changed[name] = shape
    return changed


def embedding_table(
    config: SpeechLMConfig, vocabulary: EngineVocabulary, tensors: Mapping[str, Tensor]
) -> Tensor:
    """[embedding_rows, hidden]; rows of no id are 0."""
    text = tensors[TEXT_TABLE]
    table = text.new_zeros(vocabulary.embedding_rows, text.shape[1])
    table[vocabulary.text_offset :][: vocabulary.text_tokens] = text[: vocabulary.text_tokens]
    table[vocabulary.speech] = tensors["speech_embedding.weight"]
    table[vocabulary.sos_id : vocabulary.task_id + 1] = control_table(config, tensors)
    return table


def head_weight(vocabulary: EngineVocabulary, tensors: Mapping[str, Tensor]) -> Tensor:
    """[output_rows, hidden]; rows that are no speech id are 0."""
    rows = tensors["llm_decoder.weight"]
    weight = rows.new_zeros(vocabulary.output_rows, rows.shape[1])
    weight[vocabulary.speech] = rows
    return weight


def output_bias(
    config: SpeechLMConfig, vocabulary: EngineVocabulary, tensors: Mapping[str, Tensor]
) -> Tensor:
    """[output_rows]; ``SILENT`` for what must not be emitted."""
    rows = head_bias(config, tensors)
    bias = rows.new_full((vocabulary.output_rows,), SILENT)
    bias[vocabulary.speech] = rows
    return bias


def _share(pieces: list[Tensor], axis: int | None, rank: int, tp_size: int) -> Tensor:
    shares = pieces if axis is None else [piece.chunk(tp_size, axis)[rank] for piece in pieces]
    return torch.cat(shares)
