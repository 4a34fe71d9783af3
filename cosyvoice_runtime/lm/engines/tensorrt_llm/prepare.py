"""From settings to executors."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from dataclasses import replace
from functools import partial
from typing import Any

from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.engines.engine import OpenEngine
from cosyvoice_runtime.lm.engines.tensorrt_llm.built_engine import BuiltEngine
from cosyvoice_runtime.lm.engines.tensorrt_llm.engine import TrtllmEngine
from cosyvoice_runtime.lm.engines.tensorrt_llm.installed import CONTAINER
from cosyvoice_runtime.lm.engines.tensorrt_llm.library_sampler import LibrarySampler
from cosyvoice_runtime.lm.engines.tensorrt_llm.requests import RequestMaker
from cosyvoice_runtime.lm.engines.tensorrt_llm.statistics import TrtllmStatistics
from cosyvoice_runtime.lm.engines.visible_gpu import see_only
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import TensorrtLlmSettings

logger = logging.getLogger(__name__)

BINDINGS = "tensorrt_llm.bindings.executor"


def prepare(settings: TensorrtLlmSettings) -> OpenEngine:
    """See `engine.prepare_engine`. The weights are read by each engine as it opens.

    Raises:
        InvalidInput: TensorRT-LLM is not installed, or a setting does not fit.
        EngineFileError: the engine directory holds no engine, or not the one that the settings mean.
    """
    if importlib.util.find_spec("tensorrt_llm") is None:
        limit = f"the module tensorrt_llm is not installed; NVIDIA's container {CONTAINER} has it"
        raise InvalidInput("tensorrt_llm.engine", settings.engine, limit)
    see_only(settings.device, settings.engine)
    logger.warning(
        "ras costs this engine a step of its own for every token of all requests; engine torch is the "
        "faster one for ras (docs/engines.md), this one for nucleus"
    )
    config = load_config(settings.checkpoint_dir).speech_lm
    built = BuiltEngine.open(settings, config)
    config = replace(config, text_vocab_size=built.vocabulary.text_tokens)
    bindings = importlib.import_module(BINDINGS)
    statistics = TrtllmStatistics(Metrics(settings.name), settings.kv_cache_tokens)
    return partial(_open, bindings, settings, config, built, statistics)


def executor_config(bindings: Any, settings: TensorrtLlmSettings, sampler: LibrarySampler) -> Any:
    """How the executor batches, caches and calls back."""
    return bindings.ExecutorConfig(
        max_beam_width=1,
        # The other policy may pause a stream to make room for another one.
        scheduler_config=bindings.SchedulerConfig(
            capacity_scheduler_policy=bindings.CapacitySchedulerPolicy.GUARANTEED_NO_EVICT
        ),
        # Prompts that start alike (a voice's transcript, a repeated text) are computed once.
        kv_cache_config=bindings.KvCacheConfig(
            enable_block_reuse=True,
            max_tokens=settings.kv_cache_tokens,
            free_gpu_memory_fraction=settings.kv_cache_fraction,
        ),
        max_batch_size=settings.max_slots,
        parallel_config=bindings.ParallelConfig(device_ids=[0]),
        logits_post_processor_config=bindings.LogitsPostProcessorConfig(processor_batched=sampler),
    )


def _open(
    bindings: Any,
    settings: TensorrtLlmSettings,
    config: SpeechLMConfig,
    built: BuiltEngine,
    statistics: TrtllmStatistics,
) -> TrtllmEngine:
    sampler = LibrarySampler(built.vocabulary, built.bias)
    executor = bindings.Executor(
        model_path=str(built.directory),
        model_type=bindings.ModelType.DECODER_ONLY,
        executor_config=executor_config(bindings, settings, sampler),
    )
    requests = RequestMaker(bindings, built.vocabulary, built.bias, built.max_positions)
    logger.info(
        "engine tensorrt_llm: layout %s, %d slots; nucleus and greedy are drawn by TensorRT-LLM, ras "
        "by this library in a callback",
        built.vocabulary.layout,
        settings.max_slots,
    )
    return TrtllmEngine(bindings, executor, config, requests, sampler, statistics, settings.max_slots)
