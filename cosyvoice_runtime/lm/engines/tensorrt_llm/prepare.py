"""Opening an executor by the settings, on an engine directory that fits them."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import read_tensors
from cosyvoice_runtime.checkpoint.checksums import sha256_of
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.merged_vocabulary import tokenizer_length
from cosyvoice_runtime.errors import CheckpointError, EngineFileError, InvalidInput
from cosyvoice_runtime.gpu.nvidia import present_gpu
from cosyvoice_runtime.lm.engines.engine import OpenEngine, see_only
from cosyvoice_runtime.lm.engines.tensorrt_llm import TRTLLM_CONTAINER, library_versions
from cosyvoice_runtime.lm.engines.tensorrt_llm.build import BIAS_FILE
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import EngineVocabulary
from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import BIAS_NAME, FORMAT
from cosyvoice_runtime.lm.engines.tensorrt_llm.engine import TrtllmEngine, TrtllmStatistics
from cosyvoice_runtime.lm.engines.tensorrt_llm.requests import LibrarySampler, RequestMaker
from cosyvoice_runtime.manifest import Manifest, require_current
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import TensorrtLlmSettings

MOST_OF_FREE_MEMORY = 0.5
"""The share of the free GPU memory that the KV cache may take."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuiltEngine:
    """An engine directory that has been checked.

    Attributes:
        bias: float32 [output_rows], added to the logits of a request; None where the head has it.
        max_positions: most positions of a request, prompt and output together.
    """

    directory: Path
    vocabulary: EngineVocabulary
    bias: Tensor | None
    max_positions: int

    @classmethod
    def open(cls, settings: TensorrtLlmSettings, config: SpeechLMConfig) -> BuiltEngine:
        """Check an engine directory.

        Raises:
            EngineFileError: there is no engine, or it was built from other weights, with other libraries, for
                another GPU, or with other settings; the text names every difference.
            InvalidInput: the settings ask for more than it was built for.
        """
        directory = settings.engine_dir
        manifest = Manifest.read(directory)
        require_current(directory, _wanted(manifest, settings, config))
        _check_limit(settings, "max_slots", manifest.options["max_batch_size"])
        _check_limit(settings, "max_sequence_tokens", manifest.options["max_seq_len"])
        options = manifest.options
        vocabulary = EngineVocabulary(**{each.name: options[each.name] for each in fields(EngineVocabulary)})
        bias = read_bias(directory / BIAS_FILE, vocabulary) if vocabulary.layout == "merged" else None
        return cls(directory, vocabulary, bias, settings.max_sequence_tokens)


def _wanted(built: Manifest, settings: TensorrtLlmSettings, config: SpeechLMConfig) -> Manifest:
    """Manifest of an engine that fits."""
    layout = Layout(settings.checkpoint_dir)
    gpu = present_gpu()
    required = {
        "format": FORMAT,
        "dtype": settings.dtype,
        "weight_only": settings.weight_only,
        "tp_size": 1,  # One process drives one GPU.
        **asdict(EngineVocabulary.of(settings.vocabulary, tokenizer_length(layout), config)),
    }
    return replace(
        built,
        sources=_present_sources(built, layout),
        tools=library_versions(),
        gpu=gpu.name,
        compute_capability=gpu.compute_capability,
        options={**built.options, **required},
    )


def _present_sources(built: Manifest, layout: Layout) -> dict[str, str]:
    """The engine's source files as they are in the checkpoint."""
    if layout.weights("llm").name not in built.sources:
        logger.warning("the engine's weights were converted from a directory other than the checkpoint")
        return dict(built.sources)
    adapter = [path.relative_to(layout.directory).as_posix() for path in layout.adapter]
    paths = {name: layout.directory / name for name in (*built.sources, *adapter)}
    return {name: sha256_of(path) for name, path in paths.items() if path.is_file()}


def _check_limit(settings: TensorrtLlmSettings, field: str, limit: int) -> None:
    value = getattr(settings, field)
    if value > limit:
        raise InvalidInput(f"tensorrt_llm.{field}", value, f"the engine was built for at most {limit}")


def read_bias(path: Path, vocabulary: EngineVocabulary) -> Tensor:
    """The bias of an engine, float32 [output_rows]; an EngineFileError tells of a file that is damaged."""
    try:
        bias = read_tensors(path)[BIAS_NAME]
    except (CheckpointError, KeyError) as error:
        raise EngineFileError(f"{path}: missing or damaged: {error}") from error
    if tuple(bias.shape) != (vocabulary.output_rows,):
        raise EngineFileError(f"{path}: {tuple(bias.shape)} values, not {vocabulary.output_rows}")
    return bias


BINDINGS = "tensorrt_llm.bindings.executor"


def prepare(settings: TensorrtLlmSettings) -> OpenEngine:
    """Check the engine and the settings, as `engine.prepare_engine` says; an engine reads weights as it
    opens.

    Raises:
        InvalidInput: TensorRT-LLM is not installed, or a setting does not fit.
        EngineFileError: the engine directory holds no engine, or another one than the settings say.
    """
    if importlib.util.find_spec("tensorrt_llm") is None:
        limit = f"the module tensorrt_llm is not installed; NVIDIA's container {TRTLLM_CONTAINER} has it"
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
    """The executor's batches, cache and callback."""
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
            free_gpu_memory_fraction=MOST_OF_FREE_MEMORY,
        ),
        max_batch_size=settings.max_slots,
        parallel_config=bindings.ParallelConfig(device_ids=[0]),
        logits_post_processor_config=bindings.LogitsPostProcessorConfig(processor_batched=sampler),
    )


def open_executor(
    bindings: Any, directory: Path, settings: TensorrtLlmSettings, sampler: LibrarySampler
) -> Any:
    """An executor on an engine directory."""
    return bindings.Executor(
        model_path=str(directory),
        model_type=bindings.ModelType.DECODER_ONLY,
        executor_config=executor_config(bindings, settings, sampler),
    )


def _open(
    bindings: Any,
    settings: TensorrtLlmSettings,
    config: SpeechLMConfig,
    built: BuiltEngine,
    statistics: TrtllmStatistics,
) -> TrtllmEngine:
    sampler = LibrarySampler(built.vocabulary, built.bias)
    executor = open_executor(bindings, built.directory, settings, sampler)
    requests = RequestMaker(bindings, built.vocabulary, built.bias, built.max_positions)
    logger.info(
        "engine tensorrt_llm: layout %s, %d slots; nucleus and greedy are drawn by TensorRT-LLM, ras "
        "by this library in a callback",
        built.vocabulary.layout,
        settings.max_slots,
    )
    return TrtllmEngine(bindings, executor, config, requests, sampler, statistics, settings.max_slots)
