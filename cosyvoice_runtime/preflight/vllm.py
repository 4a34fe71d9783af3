"""The preflight of the container with vLLM."""

from __future__ import annotations

from collections.abc import Iterator

from cosyvoice_runtime.lm.engines.vllm import VLLM_CONTAINERS
from cosyvoice_runtime.preflight.checks import Container, Outcome, attempt, check_symbols, symbols

CUDA = {"0.24.0": ((13, 3), (610, 43)), "0.27.1": ((13, 4), (615, 61))}
"""CUDA and driver of the image of each release, by Triton's compatibility matrix
(``docs/introduction/compatibility.md``, r26.08)."""
CONTAINERS = {
    release: Container(VLLM_CONTAINERS[release], (3, 12), cuda, driver, {"vllm": release})
    for release, (cuda, driver) in CUDA.items()
}
USED = (
    *symbols(
        "vllm",
        """
EngineArgs(model dtype skip_tokenizer_init generation_config enable_prompt_embeds logits_processors \
max_model_len max_num_seqs enable_chunked_prefill max_num_batched_tokens enable_prefix_caching \
async_scheduling block_size kv_cache_memory_bytes gpu_memory_utilization disable_log_stats) \
create_engine_config
LLMEngine(vllm_config executor_class log_stats multiprocess_mode)
LLMEngine.add_request(request_id prompt params)
LLMEngine.abort_request(request_ids)
LLMEngine.step
SamplingParams(temperature max_tokens stop_token_ids detokenize output_kind extra_args skip_clone)
ModelRegistry get_supported_archs register_model
""",
    ),
    *symbols("vllm.inputs.engine", "embeds_input(prompt_embeds)"),
    *symbols("vllm.sampling_params", "RequestOutputKind DELTA"),
    *symbols("vllm.utils.torch_utils", "current_stream"),
    *symbols("vllm.v1.executor", "Executor.get_class(vllm_config)"),
    *symbols(
        "vllm.v1.sample.logits_processor",
        "LogitsProcessor apply update_state\nBatchUpdate\nMoveDirectionality",
    ),
    *symbols(
        "vllm.model_executor.layers.vocab_parallel_embedding",
        "ParallelLMHead(num_embeddings embedding_dim bias quant_config prefix)",
    ),
    *symbols("vllm.model_executor.models.qwen2", "Qwen2ForCausalLM(vllm_config prefix)"),
    *symbols("vllm.model_executor.models.utils", "maybe_prefix(prefix name)"),
)
"""The symbols of vLLM in use, by module."""


def check() -> Iterator[Outcome]:
    """Check that the container is one of the pinned ones, and has the symbols in use."""
    container = installed_container()
    yield from container.check_versions()
    yield from container.check_driver()
    yield from check_symbols(USED)


def installed_container() -> Container:
    """The container of the installed release; of any other release and of none, the one that is built."""
    module, _ = attempt("vllm")
    release = getattr(module, "__version__", "").partition("+")[0]
    return CONTAINERS.get(release, next(iter(CONTAINERS.values())))
