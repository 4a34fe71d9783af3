"""What an engine of TensorRT-LLM, TensorRT's own networks included, needs of its container."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from cosyvoice_runtime.checkpoint.shapes import Schema
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.lm.engines.releases import LIBRARIES, TRTLLM_CONTAINER
from cosyvoice_runtime.lm.engines.tensorrt_llm.build import (
    MODEL_CLASS,
    MODEL_FILE,
    BuildOptions,
    Flag,
    build_flags,
    command,
)
from cosyvoice_runtime.lm.engines.tensorrt_llm.parameters import quantised_schema
from cosyvoice_runtime.manifest import Manifest
from cosyvoice_runtime.preflight.container import (
    Container,
    ask,
    attempt,
    check_cuda,
    check_driver,
    check_versions,
)
from cosyvoice_runtime.preflight.outcome import Outcome, failed, judged, unchecked
from cosyvoice_runtime.preflight.symbols import Symbol, check_symbols

NUMPY = "1.26.4"
"""TensorRT 10.14's Python bindings are compiled for numpy 1: with numpy 2 arrays from them have strides of 0
and ``Weights(array)`` raises. The image is given this version (``requirements/nvidia-trtllm.txt``)."""
PINNED = Container(
    image=TRTLLM_CONTAINER,
    python=(3, 12),
    cuda=(13, 1),
    driver=(590, 44),
    libraries={**LIBRARIES, "numpy": NUMPY},
)

EXECUTOR = "tensorrt_llm.bindings.executor"
MODELS = "tensorrt_llm.models"
LAYERS = "tensorrt_llm.layers"
TENSORRT = "tensorrt"

USED: tuple[Symbol, ...] = (
    Symbol(
        EXECUTOR,
        "Executor",
        "model_path model_type executor_config",
        "enqueue_request await_responses cancel_request get_latest_iteration_stats shutdown",
    ),
    Symbol(EXECUTOR, "Executor.enqueue_request", "request"),
    Symbol(EXECUTOR, "Executor.await_responses", "timeout"),
    Symbol(EXECUTOR, "Executor.cancel_request", "id"),
    Symbol(
        EXECUTOR,
        "ExecutorConfig",
        "max_beam_width scheduler_config kv_cache_config max_batch_size parallel_config "
        "logits_post_processor_config",
    ),
    Symbol(EXECUTOR, "SchedulerConfig", "capacity_scheduler_policy"),
    Symbol(EXECUTOR, "KvCacheConfig", "enable_block_reuse max_tokens free_gpu_memory_fraction"),
    Symbol(EXECUTOR, "ParallelConfig", "device_ids"),
    Symbol(EXECUTOR, "LogitsPostProcessorConfig", "processor_batched"),
    Symbol(
        EXECUTOR,
        "Request",
        "input_token_ids max_tokens streaming sampling_config output_config end_id pad_id stop_words "
        "embedding_bias logits_post_processor_name client_id",
        "BATCHED_POST_PROCESSOR_NAME",
    ),
    Symbol(
        EXECUTOR, "SamplingConfig", "beam_width top_k top_p temperature repetition_penalty min_tokens seed"
    ),
    Symbol(EXECUTOR, "OutputConfig", "exclude_input_from_output"),
    Symbol(EXECUTOR, "Response", "", "request_id has_error error_msg result"),
    Symbol(EXECUTOR, "Result", "", "is_final output_token_ids finish_reasons"),
    Symbol(EXECUTOR, "ModelType", "", "DECODER_ONLY"),
    Symbol(EXECUTOR, "CapacitySchedulerPolicy", "", "GUARANTEED_NO_EVICT"),
    Symbol(EXECUTOR, "FinishReason", "", "END_ID STOP_WORDS LENGTH"),
    Symbol(
        EXECUTOR,
        "IterationStats",
        "",
        "iter_latency_ms num_active_requests num_queued_requests gpu_mem_usage kv_cache_stats",
    ),
    Symbol(EXECUTOR, "KvCacheStats", "", "max_num_blocks used_num_blocks reused_blocks tokens_per_block"),
    Symbol(LAYERS, "Embedding", "num_embeddings embedding_dim dtype"),
    Symbol(LAYERS, "ColumnLinear", "in_features out_features bias dtype tp_group tp_size gather_output"),
    Symbol(MODELS, "QWenForCausalLM", "config", "named_parameters"),
    Symbol(MODELS, "PretrainedConfig", "", "from_checkpoint set_rank"),
)
"""What is used of TensorRT-LLM, by module."""

TENSORRT_METHODS: dict[str, dict[str, str]] = {
    "Builder": {"create_network": "flags", "build_serialized_network": "network config"},
    "OnnxParser": {"parse": "model", "get_error": "index"},
    "IBuilderConfig": {
        "clear_flag": "flag",
        "set_preview_feature": "feature enable",
        "create_timing_cache": "serialized_timing_cache",
        "set_timing_cache": "cache ignore_mismatch",
        "add_optimization_profile": "profile",
    },
    "IOptimizationProfile": {"set_shape": "input min opt max"},
    "Runtime": {"deserialize_cuda_engine": "serialized_engine"},
    "ICudaEngine": {
        "get_tensor_name": "index",
        "get_tensor_mode": "name",
        "get_tensor_dtype": "name",
        "get_tensor_profile_shape": "name profile_index",
        "create_execution_context": "strategy",
    },
    "IExecutionContext": {
        "set_optimization_profile_async": "profile_index stream_handle",
        "set_input_shape": "name shape",
        "get_tensor_shape": "name",
        "set_device_memory": "memory size",
        "set_tensor_address": "name memory",
        "execute_async_v3": "stream_handle",
    },
}
"""Parameters that are passed to each method of TensorRT, by class."""

TENSORRT_USED: tuple[Symbol, ...] = (
    Symbol(TENSORRT, "Logger", "min_severity", "WARNING"),
    Symbol(TENSORRT, "Builder", "logger", "create_builder_config create_optimization_profile"),
    Symbol(TENSORRT, "OnnxParser", "network logger", "num_errors"),
    Symbol(TENSORRT, "IBuilderConfig", "", "get_timing_cache"),
    Symbol(TENSORRT, "ITimingCache", "", "serialize"),
    Symbol(TENSORRT, "Runtime", "logger"),
    Symbol(TENSORRT, "ICudaEngine", "", "num_io_tensors num_optimization_profiles"),
    Symbol(TENSORRT, "IExecutionContext", "", "update_device_memory_size_for_shapes"),
    *(
        Symbol(TENSORRT, f"{owner}.{method}", parameters)
        for owner, methods in TENSORRT_METHODS.items()
        for method, parameters in methods.items()
    ),
    Symbol(TENSORRT, "NetworkDefinitionCreationFlag", "", "STRONGLY_TYPED"),
    Symbol(TENSORRT, "BuilderFlag", "", "TF32"),
    Symbol(TENSORRT, "PreviewFeature", "", "RUNTIME_ACTIVATION_RESIZE_10_10"),
    Symbol(TENSORRT, "TensorIOMode", "", "INPUT"),
    Symbol(TENSORRT, "DataType", "", "FLOAT HALF BOOL INT64 INT32"),
    Symbol(TENSORRT, "ExecutionContextAllocationStrategy", "", "USER_MANAGED"),
)
"""What is used of TensorRT, which 10.14 and 11 have in common."""

FLAG = re.compile(r"--(\w+)(?: \{([^}]*)\})?")
BUILD_TIMEOUT_S = 300.0
"""The program imports TensorRT-LLM before it reads its arguments; from a cold disk that takes a minute."""
BITS = {"int8": 8, "int4": 4}
SHOWN_PROBLEMS = 3
"""Problems that are named for each file; a wrong size shows in every layer."""


def check(checkpoint: Path | None) -> Iterator[Outcome]:
    """The container is the pinned one, has what is used of it, and can build this converted checkpoint."""
    yield from check_versions(PINNED)
    yield from check_cuda(PINNED)
    yield from check_driver(PINNED)
    yield from check_flags()
    yield from check_symbols((*USED, *TENSORRT_USED))
    yield from check_converted(checkpoint)


def check_flags() -> Iterator[Outcome]:
    """``trtllm-build`` knows every flag of both layouts, and its value where there are choices."""
    answer = ask(["trtllm-build", "--help"], BUILD_TIMEOUT_S)
    if answer.failure:
        yield failed("trtllm-build", answer.failure)
        return
    known = known_flags(answer.output)
    for flag in passed_flags():
        yield judged(f"trtllm-build --{flag.name}", _flag_problems(flag, known), flag.value)


def passed_flags() -> list[Flag]:
    """Every flag that a build may pass."""
    usual, in_fp8 = (build_flags(BuildOptions(), "speech", "bfloat16", kind) for kind in ("none", "fp8"))
    flags = [*usual, *(flag for flag in in_fp8 if flag not in usual)]
    arguments = command(Path("checkpoint"), Path("engine"), Path("cache"), [])
    places = [Flag(name.removeprefix("--"), "", "") for name in arguments[1::2]]
    return [*places, *flags]


def known_flags(help_text: str) -> dict[str, set[str]]:
    """Names of all flags in a help text, with the values accepted; empty for any."""
    known: dict[str, set[str]] = {}
    for name, choices in FLAG.findall(help_text):
        accepted = {choice.strip() for choice in choices.split(",") if choice.strip()}
        known[name] = known.get(name, set()) | accepted
    return known


def _flag_problems(flag: Flag, known: dict[str, set[str]]) -> list[str]:
    if flag.name not in known:
        return ["this trtllm-build has no such flag"]
    accepted = known[flag.name]
    if accepted and flag.value not in accepted:
        return [f"{flag.value} is passed, but accepted are {', '.join(sorted(accepted))}"]
    return []


def check_converted(directory: Path | None) -> Iterator[Outcome]:
    """Every tensor that the model asks for is there, in its shape, on each GPU, and no other."""
    if directory is None:
        yield unchecked("converted checkpoint", "none was named: --checkpoint DIRECTORY")
        return
    try:
        options = Manifest.read(directory).options
        headers = [_header(directory / f"rank{rank}.safetensors") for rank in range(options["tp_size"])]
    except (EngineFileError, KeyError, OSError, SafetensorError) as error:
        yield failed(f"{directory}", f"is no converted checkpoint: {error}")
        return
    models, failure = attempt(MODELS)
    if failure:
        yield unchecked(f"{directory}", failure)
        return
    model_class = models.QWenForCausalLM if options["layout"] == "merged" else speech_class()
    for rank, header in enumerate(headers):
        config = models.PretrainedConfig.from_checkpoint(str(directory))
        config.set_rank(rank)
        asked = _asked(model_class(config))
        bits = BITS.get(options["weight_only"])
        given = quantised_schema(header, bits) if bits else header
        problems = _tensor_problems(given, asked)
        yield judged(f"{directory}/rank{rank}.safetensors", problems, f"{len(header)} tensors")


def _asked(model: Any) -> Schema:
    """Every weight that a checkpoint has to bring.

    The decoder computes its tables of positions itself (``embed_positions``, ``rotary_inv_freq``,
    ``embed_positions_for_gpt_attention``) and registers them as parameters with ``is_buffer`` set;
    TensorRT-LLM's loader (``PretrainedModel.load``) asks for none of them.
    """
    return {name: tuple(value.shape) for name, value in model.named_parameters() if not value.is_buffer}


def speech_class() -> Any:
    """The model class of the speech layout, loaded as ``trtllm-build`` loads it."""
    loader = SourceFileLoader("models", str(MODEL_FILE))
    spec = spec_from_loader("models", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return getattr(module, MODEL_CLASS)


def _header(path: Path) -> Schema:
    with safe_open(path, framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no dict


def _tensor_problems(given: Schema, asked: Schema) -> list[str]:
    problems = [f"{name} is missing" for name in asked if name not in given]
    problems += [f"{name} is unknown to the model" for name in given if name not in asked]
    problems += [
        f"{name} is {given[name]}, the model asks for {asked[name]}"
        for name in given
        if name in asked and given[name] != asked[name]
    ]
    more = len(problems) - SHOWN_PROBLEMS
    return [*problems[:SHOWN_PROBLEMS], f"and {more} more"] if more > 0 else problems
