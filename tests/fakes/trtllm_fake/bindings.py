"""Classes of ``tensorrt_llm.bindings.executor``.

Signatures as in TensorRT-LLM's ``cpp/tensorrt_llm/nanobind/executor/{request,executorConfig,bindings}.cpp``:
same names, order, defaults, and the same parameters by keyword only. Types are checked as nanobind does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch


def integer(name: str, value: Any, low: int = -(2**31), high: int = 2**31 - 1) -> None:
    if type(value) is not int or not low <= value <= high:
        raise TypeError(f"{name}: incompatible function arguments: {value!r}")


def number(name: str, value: Any) -> None:
    if type(value) not in (int, float):
        raise TypeError(f"{name}: incompatible function arguments: {value!r}")


def instance(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name}: incompatible function arguments: {value!r}")


def optional(check: Any, name: str, value: Any, *arguments: Any) -> None:
    if value is not None:
        check(name, value, *arguments)


def require(holds: bool, message: str) -> None:
    """TLLM_CHECK: an exception that arrives in Python as RuntimeError."""
    if not holds:
        raise RuntimeError(f"[TensorRT-LLM][ERROR] Assertion failed: {message} (/src/x.cpp:1)")


class ModelType(Enum):
    DECODER_ONLY = 0
    ENCODER_ONLY = 1
    ENCODER_DECODER = 2


class CapacitySchedulerPolicy(Enum):
    MAX_UTILIZATION = 0
    GUARANTEED_NO_EVICT = 1
    STATIC_BATCH = 2


class FinishReason(Enum):
    NOT_FINISHED = 0
    END_ID = 1
    STOP_WORDS = 2
    LENGTH = 3
    TIMED_OUT = 4
    CANCELLED = 5


class SchedulerConfig:
    def __init__(
        self,
        capacity_scheduler_policy=CapacitySchedulerPolicy.GUARANTEED_NO_EVICT,
        context_chunking_policy=None,
        dynamic_batch_config=None,
    ):
        instance("capacity_scheduler_policy", capacity_scheduler_policy, CapacitySchedulerPolicy)
        self.capacity_scheduler_policy = capacity_scheduler_policy


class KvCacheConfig:
    def __init__(
        self,
        enable_block_reuse=True,
        max_tokens=None,
        max_attention_window=None,
        sink_token_length=None,
        free_gpu_memory_fraction=None,
        host_cache_size=None,
        onboard_blocks=True,
        cross_kv_cache_fraction=None,
        secondary_offload_min_priority=None,
        event_buffer_max_size=0,
        *,
        enable_partial_reuse=True,
        copy_on_partial_reuse=True,
        use_uvm=False,
        runtime_defaults=None,
    ):
        instance("enable_block_reuse", enable_block_reuse, bool)
        optional(integer, "max_tokens", max_tokens)
        optional(number, "free_gpu_memory_fraction", free_gpu_memory_fraction)
        require(max_tokens is None or max_tokens > 0, "maxTokens > 0")
        require(free_gpu_memory_fraction is None or 0 < free_gpu_memory_fraction < 1, "fraction in (0, 1)")
        self.enable_block_reuse = enable_block_reuse
        self.max_tokens = max_tokens
        self.free_gpu_memory_fraction = free_gpu_memory_fraction


class ParallelConfig:
    def __init__(
        self,
        communication_type=None,
        communication_mode=None,
        device_ids=None,
        participant_ids=None,
        orchestrator_config=None,
        num_nodes=None,
    ):
        optional(instance, "device_ids", device_ids, list)
        for device in device_ids or []:
            integer("device_ids", device)
        self.device_ids = device_ids


class LogitsPostProcessorConfig:
    def __init__(self, processor_map=None, processor_batched=None, replicate=True):
        optional(instance, "processor_map", processor_map, dict)
        if processor_batched is not None and not callable(processor_batched):
            raise TypeError("processor_batched: incompatible function arguments")
        self.processor_map = processor_map
        self.processor_batched = processor_batched
        self.replicate = replicate


class ExecutorConfig:
    def __init__(
        self,
        max_beam_width=1,
        scheduler_config=None,
        kv_cache_config=None,
        enable_chunked_context=False,
        normalize_log_probs=True,
        iter_stats_max_iterations=1000,
        request_stats_max_iterations=0,
        batching_type=None,
        max_batch_size=None,
        max_num_tokens=None,
        parallel_config=None,
        peft_cache_config=None,
        logits_post_processor_config=None,
        decoding_config=None,
        use_gpu_direct_storage=False,
        gpu_weights_percent=1.0,
        max_queue_size=None,
        extended_runtime_perf_knob_config=None,
        debug_config=None,
        recv_poll_period_ms=0,
        max_seq_idle_microseconds=180_000_000,
        spec_dec_config=None,
        guided_decoding_config=None,
        additional_model_outputs=None,
        cache_transceiver_config=None,
        gather_generation_logits=False,
        mm_embedding_offloading=False,
        enable_trt_overlap=False,
    ):
        integer("max_beam_width", max_beam_width)
        optional(instance, "scheduler_config", scheduler_config, SchedulerConfig)
        optional(instance, "kv_cache_config", kv_cache_config, KvCacheConfig)
        optional(integer, "max_batch_size", max_batch_size)
        optional(instance, "parallel_config", parallel_config, ParallelConfig)
        optional(
            instance, "logits_post_processor_config", logits_post_processor_config, LogitsPostProcessorConfig
        )
        self.scheduler_config = scheduler_config or SchedulerConfig()
        self.kv_cache_config = kv_cache_config or KvCacheConfig()
        self.max_batch_size = max_batch_size
        self.parallel_config = parallel_config
        self.logits_post_processor_config = logits_post_processor_config


class SamplingConfig:
    def __init__(
        self,
        beam_width=1,
        *,
        top_k=None,
        top_p=None,
        top_p_min=None,
        top_p_reset_ids=None,
        top_p_decay=None,
        seed=None,
        temperature=None,
        min_tokens=None,
        beam_search_diversity_rate=None,
        repetition_penalty=None,
        presence_penalty=None,
        frequency_penalty=None,
        length_penalty=None,
        early_stopping=None,
        no_repeat_ngram_size=None,
        num_return_sequences=None,
        min_p=None,
        beam_width_array=None,
    ):
        integer("beam_width", beam_width)
        optional(integer, "top_k", top_k)
        optional(number, "top_p", top_p)
        optional(integer, "seed", seed, 0, 2**64 - 1)
        optional(number, "temperature", temperature)
        optional(integer, "min_tokens", min_tokens)
        optional(number, "repetition_penalty", repetition_penalty)
        require(top_k is None or top_k >= 0, "topK >= 0")
        require(top_p is None or 0 < top_p <= 1, "0 < topP <= 1")
        require(temperature is None or temperature >= 0, "temperature >= 0")
        require(min_tokens is None or min_tokens >= 0, "minTokens >= 0")
        require(repetition_penalty is None or repetition_penalty > 0, "penalty > 0")
        self.beam_width = beam_width
        self.top_k, self.top_p, self.seed = top_k, top_p, seed
        self.temperature, self.min_tokens = temperature, min_tokens
        self.repetition_penalty = repetition_penalty


class OutputConfig:
    def __init__(
        self,
        return_log_probs=False,
        return_context_logits=False,
        return_generation_logits=False,
        exclude_input_from_output=False,
        return_encoder_output=False,
        return_perf_metrics=False,
        additional_model_outputs=None,
    ):
        instance("exclude_input_from_output", exclude_input_from_output, bool)
        self.exclude_input_from_output = exclude_input_from_output


class Request:
    BATCHED_POST_PROCESSOR_NAME = "batched"

    def __init__(
        self,
        input_token_ids,
        max_tokens,
        *,
        streaming=False,
        sampling_config=None,
        output_config=None,
        end_id=None,
        pad_id=None,
        position_ids=None,
        bad_words=None,
        stop_words=None,
        embedding_bias=None,
        external_draft_tokens_config=None,
        prompt_tuning_config=None,
        multimodal_input=None,
        multimodal_embedding=None,
        mrope_config=None,
        lora_config=None,
        lookahead_config=None,
        kv_cache_retention_config=None,
        logits_post_processor_name=None,
        logits_post_processor=None,
        encoder_input_token_ids=None,
        client_id=None,
        return_all_generated_tokens=False,
        priority=0.5,
        type=None,
        context_phase_params=None,
        encoder_input_features=None,
        encoder_output_length=None,
        cross_attention_mask=None,
        num_return_sequences=1,
        eagle_config=None,
        skip_cross_attn_blocks=None,
        guided_decoding_params=None,
        language_adapter_uid=None,
        allotted_time_ms=None,
    ):
        for token in input_token_ids:
            integer("input_token_ids", token)
        integer("max_tokens", max_tokens)
        instance("streaming", streaming, bool)
        optional(instance, "sampling_config", sampling_config, SamplingConfig)
        optional(instance, "output_config", output_config, OutputConfig)
        optional(integer, "end_id", end_id)
        optional(integer, "pad_id", pad_id)
        for word in stop_words or []:
            for token in word:
                integer("stop_words", token)
        optional(instance, "embedding_bias", embedding_bias, torch.Tensor)
        optional(instance, "logits_post_processor_name", logits_post_processor_name, str)
        optional(integer, "client_id", client_id, 0, 2**64 - 1)
        require(len(input_token_ids) > 0, "!inputTokenIds.empty()")
        require(max_tokens > 0, "maxNewTokens > 0")
        self.input_token_ids = list(input_token_ids)
        self.max_tokens = max_tokens
        self.streaming = streaming
        self.sampling_config = sampling_config or SamplingConfig()
        self.output_config = output_config or OutputConfig()
        self.end_id, self.pad_id = end_id, pad_id
        self.stop_words = [list(word) for word in stop_words or []]
        self.embedding_bias = embedding_bias
        self.logits_post_processor_name = logits_post_processor_name
        self.client_id = client_id


@dataclass
class Result:
    is_final: bool = False
    output_token_ids: list[list[int]] | None = None
    finish_reasons: list[FinishReason] | None = None


class Response:
    """Either a result or an error; asking for the other one is an error, as in C++."""

    def __init__(self, request_id, result=None, error=None):
        self._request_id, self._result, self._error = request_id, result, error

    @property
    def request_id(self) -> int:
        return self._request_id

    def has_error(self) -> bool:
        return self._error is not None

    @property
    def error_msg(self) -> str:
        require(self._error is not None, "no error")
        return self._error

    @property
    def result(self) -> Result:
        require(self._error is None, "the response has an error")
        return self._result


@dataclass
class KvCacheStats:
    max_num_blocks: int = 0
    used_num_blocks: int = 0
    reused_blocks: int = 0
    tokens_per_block: int = 32


@dataclass
class IterationStats:
    iter_latency_ms: float = 0.0
    num_active_requests: int = 0
    num_queued_requests: int = 0
    gpu_mem_usage: int = 0
    kv_cache_stats: KvCacheStats | None = None


def model_path(value: Any) -> Path:
    if not isinstance(value, (str, Path)):
        raise TypeError(f"model_path: incompatible function arguments: {value!r}")
    return Path(value)
