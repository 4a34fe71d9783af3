"""Published tensors and sizes of a speech LM on a Qwen2: rows, joined projections, and what is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families import FAMILIES, load

T = TypeVar("T", bound=Any)
"""A tensor of PyTorch or an array of numpy."""


def control_table(config: SpeechLMConfig, tensors: Mapping[str, T]) -> T:
    """Embeddings of sos and of the task id, ``[2, hidden]``: a table, or two rows of the speech table."""
    if config.control_rows is None:
        return tensors["llm_embedding.weight"]
    return tensors["speech_embedding.weight"][list(config.control_rows)]


def head_bias(config: SpeechLMConfig, tensors: Mapping[str, T]) -> T:
    """Bias of the output head, ``[speech_rows]``; zeros where it has none, for programs that add one."""
    return tensors["llm_decoder.bias"] if config.head_bias else tensors["llm_decoder.weight"][:, 0] * 0


Join = Callable[[list[T]], T]
"""Joins tensors by rows: ``torch.cat`` or ``numpy.concatenate``."""

BACKBONE = "llm.model.model"

_LAYER_PARTS: dict[str, tuple[str, ...]] = {
    "attention_norm.weight": ("input_layernorm.weight",),
    "attention.qkv.weight": tuple(f"self_attn.{x}_proj.weight" for x in "qkv"),
    "attention.qkv.bias": tuple(f"self_attn.{x}_proj.bias" for x in "qkv"),
    "attention.output.weight": ("self_attn.o_proj.weight",),
    "mlp_norm.weight": ("post_attention_layernorm.weight",),
    "mlp.gate_up.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "mlp.down.weight": ("mlp.down_proj.weight",),
}


PROJECTIONS = {
    name.removesuffix(".weight"): tuple(part.removesuffix(".weight") for part in parts)
    for name, parts in _LAYER_PARTS.items()
    if parts[0].endswith("_proj.weight")
}
"""Linear layers of a layer of `network.SpeechLM`, and the published ones that each is joined of."""


def outer_tensors(config: SpeechLMConfig, tensors: Mapping[str, T]) -> dict[str, T]:
    """Embeddings, last norm and head from published tensors, under the names of `network.SpeechLM`.

    The backbone's own text head is left out: nothing reads it.
    """
    outer = {
        "control_embedding.weight": control_table(config, tensors),
        "speech_embedding.weight": tensors["speech_embedding.weight"],
        "text_embedding.weight": tensors[f"{BACKBONE}.embed_tokens.weight"],
        "norm.weight": tensors[f"{BACKBONE}.norm.weight"],
        "head.weight": tensors["llm_decoder.weight"],
    }
    if config.head_bias:
        outer["head.bias"] = tensors["llm_decoder.bias"]
    return outer


def layer_tensors(tensors: Mapping[str, T], index: int, join: Join[T]) -> dict[str, T]:
    """One layer of `network.SpeechLM` from published tensors; q, k, v and gate, up are joined by rows."""
    source = f"{BACKBONE}.layers.{index}"
    parts = {name: [tensors[f"{source}.{part}"] for part in names] for name, names in _LAYER_PARTS.items()}
    return {name: found[0] if len(found) == 1 else join(found) for name, found in parts.items()}


KIND = "kind"


def recorded(config: SpeechLMConfig) -> dict[str, Any]:
    """The record of a configuration in JSON, which :func:`read_recorded` reads back."""
    return {KIND: type(config).__name__, **asdict(config)}


def read_recorded(record: Mapping[str, Any]) -> SpeechLMConfig:
    """The configuration in a record; a CheckpointError tells that it is no record of :func:`recorded`."""
    try:
        sizes = {key: value for key, value in record.items() if key != KIND}
        kind = _backed_by_qwen2()[record[KIND]]
        return kind(**{**sizes, "mix_ratio": tuple(sizes["mix_ratio"])})
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"no sizes of a speech LM are recorded: {error!r}") from error


def _backed_by_qwen2() -> dict[str, type[SpeechLMConfig]]:
    """Classes of configurations of speech LMs that have a Qwen2 as their backbone, by name."""
    kinds = [load(family.speech_lm.config) for family in FAMILIES if family.has_qwen2]
    return {kind.__name__: kind for kind in kinds}
