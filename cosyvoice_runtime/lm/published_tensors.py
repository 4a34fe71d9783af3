"""Published tensor names of ``llm.pt`` and how they map to the network's fused projections."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import SpeechLMConfig
from cosyvoice_runtime.checkpoint.schema import llm_schema
from cosyvoice_runtime.checkpoint.tensors import published_names, schema_problems
from cosyvoice_runtime.errors import CheckpointError

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


def check_tensors(config: SpeechLMConfig, tensors: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` naming the first missing, unknown or misshapen tensor."""
    problems = schema_problems(published_names("llm", dict(tensors)), llm_schema(config))
    if problems:
        raise CheckpointError(f"llm: {problems[0]}")


def fused_tensors(config: SpeechLMConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State of `network.SpeechLM` from published tensors; q, k, v and gate, up are joined by rows.

    The backbone's own text head is left out: nothing reads it.
    """
    state = {
        "control_embedding.weight": _control_table(config, tensors),
        "speech_embedding.weight": tensors["speech_embedding.weight"],
        "text_embedding.weight": tensors[f"{BACKBONE}.embed_tokens.weight"],
        "norm.weight": tensors[f"{BACKBONE}.norm.weight"],
        "head.weight": tensors["llm_decoder.weight"],
    }
    if config.head_bias:
        state["head.bias"] = tensors["llm_decoder.bias"]
    for index in range(config.num_layers):
        source = f"{BACKBONE}.layers.{index}"
        for name, parts in _LAYER_PARTS.items():
            joined = [tensors[f"{source}.{part}"] for part in parts]
            state[f"layers.{index}.{name}"] = joined[0] if len(joined) == 1 else torch.cat(joined)
    return state


def _control_table(config: SpeechLMConfig, tensors: Mapping[str, Tensor]) -> Tensor:
    """Embeddings of sos and of the task id, ``[2, hidden]``: a table, or two rows of the speech table."""
    if config.control_rows is None:
        return tensors["llm_embedding.weight"]
    return tensors["speech_embedding.weight"][list(config.control_rows)]
