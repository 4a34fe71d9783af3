"""The symbols of TensorRT-LLM that this project uses; and whether a library has what is used of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from cosyvoice_runtime.preflight.modules import attempt
from cosyvoice_runtime.preflight.outcome import Outcome, failed, judged, unchecked
from cosyvoice_runtime.preflight.signatures import overloads

EXECUTOR = "tensorrt_llm.bindings.executor"
MODELS = "tensorrt_llm.models"
LAYERS = "tensorrt_llm.layers"


@dataclass(frozen=True)
class Symbol:
    """A class or function.

    Attributes:
        parameters: passed to it.
        attributes: read from it, or from an instance.
    """

    module: str
    name: str
    parameters: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


USED: tuple[Symbol, ...] = (
    Symbol(
        EXECUTOR,
        "Executor",
        ("model_path", "model_type", "executor_config"),
        (
            "enqueue_request",
            "await_responses",
            "cancel_request",
            "get_latest_iteration_stats",
            "shutdown",
        ),
    ),
    Symbol(EXECUTOR, "Executor.enqueue_request", ("request",)),
    Symbol(EXECUTOR, "Executor.await_responses", ("timeout",)),
    Symbol(EXECUTOR, "Executor.cancel_request", ("id",)),
    Symbol(
        EXECUTOR,
        "ExecutorConfig",
        (
            "max_beam_width",
            "scheduler_config",
            "kv_cache_config",
            "max_batch_size",
            "parallel_config",
            "logits_post_processor_config",
        ),
    ),
    Symbol(EXECUTOR, "SchedulerConfig", ("capacity_scheduler_policy",)),
    Symbol(EXECUTOR, "KvCacheConfig", ("enable_block_reuse", "max_tokens", "free_gpu_memory_fraction")),
    Symbol(EXECUTOR, "ParallelConfig", ("device_ids",)),
    Symbol(EXECUTOR, "LogitsPostProcessorConfig", ("processor_batched",)),
    Symbol(
        EXECUTOR,
        "Request",
        (
            "input_token_ids",
            "max_tokens",
            "streaming",
            "sampling_config",
            "output_config",
            "end_id",
            "pad_id",
            "stop_words",
            "embedding_bias",
            "logits_post_processor_name",
            "client_id",
        ),
        ("BATCHED_POST_PROCESSOR_NAME",),
    ),
    Symbol(
        EXECUTOR,
        "SamplingConfig",
        ("beam_width", "top_k", "top_p", "temperature", "repetition_penalty", "min_tokens", "seed"),
    ),
    Symbol(EXECUTOR, "OutputConfig", ("exclude_input_from_output",)),
    Symbol(EXECUTOR, "Response", (), ("request_id", "has_error", "error_msg", "result")),
    Symbol(EXECUTOR, "Result", (), ("is_final", "output_token_ids", "finish_reasons")),
    Symbol(EXECUTOR, "ModelType", (), ("DECODER_ONLY",)),
    Symbol(EXECUTOR, "CapacitySchedulerPolicy", (), ("GUARANTEED_NO_EVICT",)),
    Symbol(EXECUTOR, "FinishReason", (), ("END_ID", "STOP_WORDS", "LENGTH")),
    Symbol(
        EXECUTOR,
        "IterationStats",
        (),
        ("iter_latency_ms", "num_active_requests", "num_queued_requests", "gpu_mem_usage", "kv_cache_stats"),
    ),
    Symbol(
        EXECUTOR,
        "KvCacheStats",
        (),
        ("max_num_blocks", "used_num_blocks", "reused_blocks", "tokens_per_block"),
    ),
    Symbol(LAYERS, "Embedding", ("num_embeddings", "embedding_dim", "dtype")),
    Symbol(
        LAYERS,
        "ColumnLinear",
        ("in_features", "out_features", "bias", "dtype", "tp_group", "tp_size", "gather_output"),
    ),
    Symbol(MODELS, "QWenForCausalLM", ("config",), ("named_parameters",)),
    Symbol(MODELS, "PretrainedConfig", (), ("from_checkpoint", "set_rank")),
)
"""By module."""


def check_python_api(used: Iterable[Symbol]) -> Iterator[Outcome]:
    """Every symbol is there, with the parameters that are passed to it.

    Args:
        used: by module.
    """
    for name, symbols in groupby(used, attrgetter("module")):
        module, failure = attempt(name)
        if failure:
            yield unchecked(name, failure)
        else:
            yield from (_look(symbol, module) for symbol in symbols)


def _look(symbol: Symbol, found: Any) -> Outcome:
    check = f"{symbol.module}.{symbol.name}"
    for name in symbol.name.split("."):
        if not hasattr(found, name):
            return failed(check, "does not exist")
        found = getattr(found, name)
    return _compare(check, symbol, found)


def _compare(check: str, symbol: Symbol, found: Any) -> Outcome:
    problems = [f"has no {name}" for name in symbol.attributes if not hasattr(found, name)]
    if symbol.parameters:
        known = overloads(found.__init__ if isinstance(found, type) else found)  # type: ignore[misc]
        if not known and not problems:
            return unchecked(check, "its parameters can't be read")
        best = min(([name for name in symbol.parameters if name not in one] for one in known), key=len)
        problems += [f"takes no {name}" for name in best]
    return judged(check, problems)
