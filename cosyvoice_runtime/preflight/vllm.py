"""What a server on vLLM needs of its container."""

from __future__ import annotations

from collections.abc import Iterator

from cosyvoice_runtime.lm.engines.releases import VLLM_CONTAINER, VLLM_VERSION
from cosyvoice_runtime.preflight.container import Container, check_driver, check_versions
from cosyvoice_runtime.preflight.outcome import Outcome
from cosyvoice_runtime.preflight.symbols import Symbol, check_symbols

PINNED = Container(
    image=VLLM_CONTAINER,
    python=(3, 12),
    cuda=(13, 3),
    driver=(610, 43),
    libraries={"vllm": VLLM_VERSION},
)
"""Versions of Triton's compatibility matrix (``docs/introduction/compatibility.md``, r26.07)."""
USED: tuple[Symbol, ...] = (
    Symbol(
        "vllm",
        "EngineArgs",
        "model dtype skip_tokenizer_init generation_config enable_prompt_embeds logits_processors "
        "max_model_len max_num_seqs enable_chunked_prefill max_num_batched_tokens enable_prefix_caching "
        "async_scheduling block_size kv_cache_memory_bytes gpu_memory_utilization disable_log_stats",
        "create_engine_config",
    ),
    Symbol("vllm", "LLMEngine", "vllm_config executor_class log_stats multiprocess_mode"),
    Symbol("vllm", "LLMEngine.add_request", "request_id prompt params"),
    Symbol("vllm", "LLMEngine.abort_request", "request_ids"),
    Symbol("vllm", "LLMEngine.step"),
    Symbol(
        "vllm",
        "SamplingParams",
        "temperature max_tokens stop_token_ids detokenize output_kind extra_args skip_clone",
    ),
    Symbol("vllm", "ModelRegistry", "", "get_supported_archs register_model"),
    Symbol("vllm.inputs.engine", "embeds_input", "prompt_embeds"),
    Symbol("vllm.sampling_params", "RequestOutputKind", "", "DELTA"),
    Symbol("vllm.utils.torch_utils", "current_stream"),
    Symbol("vllm.v1.executor", "Executor.get_class", "vllm_config"),
    Symbol("vllm.v1.sample.logits_processor", "LogitsProcessor", "", "apply update_state"),
    Symbol("vllm.v1.sample.logits_processor", "BatchUpdate"),
    Symbol("vllm.v1.sample.logits_processor", "MoveDirectionality"),
    Symbol(
        "vllm.model_executor.layers.vocab_parallel_embedding",
        "ParallelLMHead",
        "num_embeddings embedding_dim bias quant_config prefix",
    ),
    Symbol("vllm.model_executor.models.qwen2", "Qwen2ForCausalLM", "vllm_config prefix"),
    Symbol("vllm.model_executor.models.utils", "maybe_prefix", "prefix name"),
)
"""What is used of vLLM, by module."""


def check() -> Iterator[Outcome]:
    """The container is the pinned one, and has what is used of it."""
    yield from check_versions(PINNED)
    yield from check_driver(PINNED)
    yield from check_symbols(USED)
