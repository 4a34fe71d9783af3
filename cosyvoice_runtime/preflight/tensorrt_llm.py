"""The preflight of the container with TensorRT-LLM, TensorRT's own networks included."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from cosyvoice_runtime.checkpoint.schema import Schema
from cosyvoice_runtime.errors import EngineFileError, shorten
from cosyvoice_runtime.lm.engines.tensorrt_llm import LIBRARIES, TRTLLM_CONTAINER
from cosyvoice_runtime.lm.engines.tensorrt_llm.build import (
    MODEL_CLASS,
    MODEL_FILE,
    BuildOptions,
    Flag,
    build_flags,
    command,
)
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import quantised_schema
from cosyvoice_runtime.manifest import Manifest
from cosyvoice_runtime.preflight.checks import (
    Container,
    Outcome,
    Verdict,
    ask,
    attempt,
    check_symbols,
    dotted,
    judged,
    symbols,
)

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

_EXECUTOR = """
Executor(model_path model_type executor_config) enqueue_request await_responses cancel_request \
get_latest_iteration_stats shutdown
Executor.enqueue_request(request)
Executor.await_responses(timeout)
Executor.cancel_request(id)
ExecutorConfig(max_beam_width scheduler_config kv_cache_config max_batch_size parallel_config \
logits_post_processor_config)
SchedulerConfig(capacity_scheduler_policy)
KvCacheConfig(enable_block_reuse max_tokens free_gpu_memory_fraction)
ParallelConfig(device_ids)
LogitsPostProcessorConfig(processor_batched)
Request(input_token_ids max_tokens streaming sampling_config output_config end_id pad_id stop_words \
embedding_bias logits_post_processor_name client_id) BATCHED_POST_PROCESSOR_NAME
SamplingConfig(beam_width top_k top_p temperature repetition_penalty min_tokens seed)
OutputConfig(exclude_input_from_output)
Response request_id has_error error_msg result
Result is_final output_token_ids finish_reasons
ModelType DECODER_ONLY
CapacitySchedulerPolicy GUARANTEED_NO_EVICT
FinishReason END_ID STOP_WORDS LENGTH
IterationStats iter_latency_ms num_active_requests num_queued_requests gpu_mem_usage kv_cache_stats
KvCacheStats max_num_blocks used_num_blocks reused_blocks tokens_per_block
"""
_LAYERS = """
Embedding(num_embeddings embedding_dim dtype)
ColumnLinear(in_features out_features bias dtype tp_group tp_size gather_output)
"""
_MODELS = """
QWenForCausalLM(config) named_parameters
PretrainedConfig from_checkpoint set_rank
"""
USED = (*symbols(EXECUTOR, _EXECUTOR), *symbols(LAYERS, _LAYERS), *symbols(MODELS, _MODELS))
"""The symbols of TensorRT-LLM in use, by module."""

TENSORRT_USED = symbols(
    TENSORRT,
    """
Logger(min_severity) WARNING
Builder(logger) create_builder_config create_optimization_profile
Builder.create_network(flags)
Builder.build_serialized_network(network config)
OnnxParser(network logger) num_errors
OnnxParser.parse(model)
OnnxParser.get_error(index)
IBuilderConfig get_timing_cache
IBuilderConfig.clear_flag(flag)
IBuilderConfig.set_preview_feature(feature enable)
IBuilderConfig.create_timing_cache(serialized_timing_cache)
IBuilderConfig.set_timing_cache(cache ignore_mismatch)
IBuilderConfig.add_optimization_profile(profile)
IOptimizationProfile.set_shape(input min opt max)
ITimingCache serialize
Runtime(logger)
Runtime.deserialize_cuda_engine(serialized_engine)
ICudaEngine num_io_tensors num_optimization_profiles
ICudaEngine.get_tensor_name(index)
ICudaEngine.get_tensor_mode(name)
ICudaEngine.get_tensor_dtype(name)
ICudaEngine.get_tensor_profile_shape(name profile_index)
ICudaEngine.create_execution_context(strategy)
IExecutionContext update_device_memory_size_for_shapes
IExecutionContext.set_optimization_profile_async(profile_index stream_handle)
IExecutionContext.set_input_shape(name shape)
IExecutionContext.get_tensor_shape(name)
IExecutionContext.set_device_memory(memory size)
IExecutionContext.set_tensor_address(name memory)
IExecutionContext.execute_async_v3(stream_handle)
NetworkDefinitionCreationFlag STRONGLY_TYPED
BuilderFlag TF32
PreviewFeature RUNTIME_ACTIVATION_RESIZE_10_10
TensorIOMode INPUT
DataType FLOAT HALF BOOL INT64 INT32
ExecutionContextAllocationStrategy USER_MANAGED
""",
)
"""The symbols of TensorRT in use, which 10.14 and 11 have in common."""

FLAG = re.compile(r"--(\w+)(?: \{([^}]*)\})?")
BUILD_TIMEOUT_S = 300.0
"""The program imports TensorRT-LLM before it reads its arguments; from a cold disk that takes a minute."""
TRIAL = [sys.executable, "-m", "cosyvoice_runtime.preflight.trtllm_trial"]
TRIAL_FOUND = "trial found: "
"""The beginning of the line that tells what it found; libraries in C++ print others, also at their end."""
TRIAL_TIMEOUT_S = 900.0
"""An engine of two layers should be built in a minute or two; a slower disk and a cold start get more."""
BITS = {"int8": 8, "int4": 4}
SHOWN_PROBLEMS = 3
"""Problems that are named for each file; a wrong size shows in every layer."""


def check(checkpoint: Path | None) -> Iterator[Outcome]:
    """Check that the container is the pinned one, has the symbols in use, and can build this checkpoint.

    Where nothing of that fails, a small engine is built and asked.
    """
    outcomes = [
        *PINNED.check_versions(),
        check_cuda(),
        *PINNED.check_driver(),
        *check_flags(),
        *check_symbols((*USED, *TENSORRT_USED)),
        *check_converted(checkpoint),
    ]
    yield from outcomes
    if not any(outcome.verdict is Verdict.FAIL for outcome in outcomes):
        yield from check_trial(checkpoint)


def check_cuda() -> Outcome:
    """Check that torch is built for the container's CUDA; another of the same major version is compatible."""
    name = "cuda of torch"
    module, failure = attempt("torch")
    if failure:
        return Outcome(name, Verdict.FAIL, failure)
    found = str(module.version.cuda)
    outcome = PINNED.compared(name, found, dotted(PINNED.cuda))
    compatible = found.partition(".")[0] == str(PINNED.cuda[0])
    return outcome._replace(verdict=Verdict.WARN) if outcome.text != found and compatible else outcome


def check_flags() -> Iterator[Outcome]:
    """Check that ``trtllm-build`` knows every flag of both layouts, and its value where there are choices."""
    answer = ask(["trtllm-build", "--help"], BUILD_TIMEOUT_S)
    if answer.failure:
        yield Outcome("trtllm-build", Verdict.FAIL, answer.failure)
        return
    known = known_flags(answer.output)
    for flag in passed_flags():
        yield judged(f"trtllm-build --{flag.name}", _flag_problems(flag, known), flag.value)


def passed_flags() -> list[Flag]:
    """Every flag that a build may pass."""
    usual, in_fp8 = (build_flags(BuildOptions(), "speech", "bfloat16", kind) for kind in ("none", "fp8"))
    flags = [*usual, *(flag for flag in in_fp8 if flag not in usual)]
    arguments = command(Path("checkpoint"), Path("engine"), Path("cache"), [])
    paths = [Flag(name.removeprefix("--"), "", "") for name in arguments[1::2]]
    return [*paths, *flags]


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
    """Check that every tensor that the model asks for is there, in its shape, on each GPU, and no other."""
    if directory is None:
        yield Outcome("converted checkpoint", Verdict.UNKNOWN, "none was named: --checkpoint DIRECTORY")
        return
    try:
        options = Manifest.read(directory).options
        headers = [_header(directory / f"rank{rank}.safetensors") for rank in range(options["tp_size"])]
    except (EngineFileError, KeyError, OSError, SafetensorError) as error:
        yield Outcome(str(directory), Verdict.FAIL, f"is no converted checkpoint: {error}")
        return
    models, failure = attempt(MODELS)
    if failure:
        yield Outcome(str(directory), Verdict.UNKNOWN, failure)
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


def check_trial(checkpoint: Path | None) -> Iterator[Outcome]:
    """Check that an engine as small as can be, of the checkpoint's layout and dtype, answers as it should."""
    options = {} if checkpoint is None else Manifest.read(checkpoint).options
    kind = [options.get("layout", "merged"), options.get("dtype", "bfloat16")]
    told = ask([*TRIAL, *kind], TRIAL_TIMEOUT_S)
    if told.failure:
        yield Outcome("trial", Verdict.FAIL, f"a small engine of layout {kind[0]} {told.failure}")
        return
    found = [line for line in told.output.splitlines() if line.startswith(TRIAL_FOUND)]
    if not found:
        yield Outcome(
            "trial", Verdict.FAIL, f"it printed no line of findings, but {shorten(told.output.strip())}"
        )
        return
    for name, problems, text in json.loads(found[-1].removeprefix(TRIAL_FOUND)):
        yield judged(f"trial: {name}", problems, text)


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
