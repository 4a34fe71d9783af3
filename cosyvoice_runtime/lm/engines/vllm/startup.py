"""From settings to engines."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import Any

import torch

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.lm import Prompt, SamplingOptions, cache_bytes
from cosyvoice_runtime.lm.engines.engine import OpenEngine, check_cache_room, see_only
from cosyvoice_runtime.lm.engines.releases import require_vllm
from cosyvoice_runtime.lm.engines.vllm import register
from cosyvoice_runtime.lm.engines.vllm.engine import MakeParams, VllmEngine, VllmStatistics, VllmUtterance
from cosyvoice_runtime.lm.engines.vllm.export import PromptTables, not_finite_id, wanted_manifest
from cosyvoice_runtime.manifest import require_current
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import TensorrtLlmSettings

logger = logging.getLogger(__name__)

BLOCK = 16
"""Positions in a block of vLLM's cache."""
SAMPLER = f"{__package__}.sampler:SpeechSampler"


def prepare(settings: TensorrtLlmSettings) -> OpenEngine:
    """See `engine.prepare_engine`. vLLM reads the weights as an engine opens.

    Raises:
        InvalidInput: vLLM is not installed in the release that is needed, or a setting does not fit.
        EngineFileError: ``engine_dir`` holds no export, or one of another checkpoint or dtype.
    """
    require_vllm()
    see_only(settings.device, settings.engine)
    config = load_config(settings.checkpoint_dir).speech_lm
    check_cache_room(settings, config.max_positions)
    require_current(settings.engine_dir, wanted_manifest(Layout(settings.checkpoint_dir), settings.dtype))
    statistics = VllmStatistics(Metrics(settings.name))
    return partial(_open, settings, config, PromptTables.read(settings.engine_dir), statistics)


def engine_args(settings: TensorrtLlmSettings, config: SpeechLMConfig, gpu_bytes: int) -> dict[str, Any]:
    """``vllm.EngineArgs``.

    Args:
        gpu_bytes: memory of the GPU, of which vLLM wants the cache's share to be free when it starts.
    """
    cache = pool_bytes(settings, config)
    return {
        "model": str(settings.engine_dir),
        "dtype": settings.dtype,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "enable_prompt_embeds": True,
        "logits_processors": [SAMPLER],
        "max_model_len": settings.max_sequence_tokens,
        "max_num_seqs": settings.max_slots,
        # Prompts are computed whole: vLLM samples every sequence of a step, also one whose prompt isn't
        # complete, and throws that draw away.
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": settings.max_sequence_tokens,
        # Prompts start with the text: two of one voice share little, and looking it up means hashing them.
        "enable_prefix_caching": False,
        # A draw needs the logits on the host, so the next step can't be prepared ahead of it.
        "async_scheduling": False,
        "block_size": BLOCK,
        "kv_cache_memory_bytes": cache,
        "gpu_memory_utilization": cache / gpu_bytes,
        "disable_log_stats": True,
    }


def pool_bytes(settings: TensorrtLlmSettings, config: SpeechLMConfig) -> int:
    """Memory of the cache: every request in whole blocks, and the block that vLLM keeps for itself."""
    blocks = -(-settings.kv_cache_tokens // BLOCK) + settings.max_slots + 1
    return cache_bytes(config, blocks, BLOCK, getattr(torch, settings.dtype))


def start(args: dict[str, Any]) -> Any:
    """``vllm.LLMEngine`` in this process."""
    os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "0"  # vLLM's sampler draws nothing here, and needn't load
    from vllm import EngineArgs, LLMEngine
    from vllm.v1.executor import Executor

    register()
    vllm_config = EngineArgs(**args).create_engine_config()
    # In this process: a step is a few milliseconds, and messages to another one would be added to each.
    return LLMEngine(vllm_config, Executor.get_class(vllm_config), log_stats=False, multiprocess_mode=False)


def engine_of(
    llm: Any,
    params: MakeParams,
    settings: TensorrtLlmSettings,
    config: SpeechLMConfig,
    tables: PromptTables,
    statistics: VllmStatistics,
) -> VllmEngine:
    """The scheduler's engine on a started one."""
    from vllm.inputs.engine import embeds_input
    from vllm.utils.torch_utils import current_stream

    longest = settings.max_sequence_tokens
    return VllmEngine(
        llm, params, embeds_input, current_stream, config, tables, statistics, settings.max_slots, longest
    )


def speech_params(config: SpeechLMConfig) -> MakeParams:
    """``vllm.SamplingParams`` of utterances that the `SpeechSampler` draws."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    def make(utterance: VllmUtterance, most: int) -> Any:
        return SamplingParams(
            temperature=0.0,  # takes the one id that the sampler leaves
            max_tokens=most,
            stop_token_ids=[*config.stop_ids, not_finite_id(config)],
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args=utterance.as_extra_args(),
            skip_clone=True,
        )

    return make


def _open(
    settings: TensorrtLlmSettings, config: SpeechLMConfig, tables: PromptTables, statistics: VllmStatistics
) -> VllmEngine:
    gpu_bytes = torch.cuda.get_device_properties(0).total_memory
    llm = start(engine_args(settings, config, gpu_bytes))
    logger.info(
        "engine vllm: %d slots of %d positions, %.0f MiB of cache; all tokens are drawn by this library",
        settings.max_slots,
        settings.max_sequence_tokens,
        pool_bytes(settings, config) / 2**20,
    )
    engine = engine_of(llm, speech_params(config), settings, config, tables, statistics)
    _warm_up(engine)
    return engine


def _warm_up(engine: VllmEngine) -> None:
    """vLLM compiles some kernels with its first prompt, and others with the token after it."""
    engine.add(Prompt([0]), SamplingOptions("greedy", min_tokens=2, max_tokens=2))
    while all(each.finish_reason is None for each in engine.step()):
        pass
    torch.cuda.synchronize()  # further steps come from another thread, on a stream of its own
