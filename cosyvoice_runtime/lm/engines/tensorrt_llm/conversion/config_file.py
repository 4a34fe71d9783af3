"""``config.json`` of a TensorRT-LLM checkpoint (keys of ``QWenConfig`` and ``PretrainedConfig``)."""

from __future__ import annotations

from typing import Any

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.lm.engines.tensorrt_llm.conversion.vocabulary import EngineVocabulary

QUANT_ALGOS = {"none": None, "int8": "W8A16", "int4": "W4A16", "fp8": "FP8"}
"""TensorRT-LLM's names of quantisation (``QuantAlgo`` in ``tensorrt_llm/quantization/mode.py``), by ours."""


def engine_config(
    config: SpeechLMConfig, vocabulary: EngineVocabulary, dtype: str, tp_size: int, weight_only: str
) -> dict[str, Any]:
    """Content of ``config.json``, for all GPUs.

    ``embedding_rows`` is read by our own model class only, where the embedding is longer than the head.
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
