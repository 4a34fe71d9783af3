"""The engine ``vllm``: vLLM's `LLMEngine` in this process, started from the settings."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import logging
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.lm import FinishReason, Generation, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import OpenEngine, check_cache_room, see_only
from cosyvoice_runtime.lm.engines.vllm import KEY, register, require_vllm
from cosyvoice_runtime.lm.engines.vllm.export import PromptTables, not_finite_id, wanted_manifest
from cosyvoice_runtime.lm.generation import Progress, TokenLimits
from cosyvoice_runtime.lm.sampling import NOT_FINITE, check_room
from cosyvoice_runtime.lm.torch.kv_cache import cache_bytes
from cosyvoice_runtime.manifest import require_current
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import TensorrtLlmSettings

logger = logging.getLogger(__name__)

BLOCK = 16
"""Positions in a block of vLLM's cache."""
SAMPLER = f"{__package__}.sampler:SpeechSampler"


@dataclass(frozen=True)
class VllmUtterance:
    """An utterance as the sampler in vLLM's step reads it.

    Attributes:
        options: options of the draws, with a seed.
        prompt_speech: codes that the repetition penalty counts as well.
    """

    options: SamplingOptions
    prompt_speech: Sequence[int]
    limits: TokenLimits

    def generation(self, config: SpeechLMConfig) -> Generation:
        """A fresh record of the utterance, with nothing drawn yet."""
        return Generation(config, self.options, self.prompt_speech, self.limits)

    def as_extra_args(self) -> dict[str, Any]:
        """Plain values, which survive the way to another process."""
        return {
            KEY: {
                "options": asdict(self.options),
                "prompt_speech": list(self.prompt_speech),
                "limits": list(self.limits),
            }
        }

    @classmethod
    def from_extra_args(cls, extra_args: Mapping[str, Any] | None) -> VllmUtterance:
        """Read what :meth:`as_extra_args` wrote; raises ValueError for anything else."""
        if not extra_args or KEY not in extra_args:
            raise ValueError(f"a request to this model needs extra_args[{KEY!r}]")
        values = extra_args[KEY]
        options = SamplingOptions(**values["options"])
        return cls(options, values["prompt_speech"], TokenLimits(*values["limits"]))


STEP_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class VllmStatistics:
    """The metrics of an engine, without vLLM's own Prometheus registry and log."""

    def __init__(self, metrics: Metrics) -> None:
        self.requests = metrics.gauge("cosyvoice_vllm_active_requests", "Requests in vLLM's engine.")
        self.cache = metrics.gauge("cosyvoice_vllm_kv_cache_usage", "Share of the KV cache in use, 0 to 1.")
        self.step = metrics.histogram("cosyvoice_vllm_step_seconds", "Duration of a step.", STEP_BUCKETS_S)


class VllmEngine:
    """An engine of vLLM, which computes in the thread that calls `step`; its `SpeechSampler` draws.

    Both keep a `Generation` of each utterance: this one says which ids are speech and when it has ended.

    Args:
        llm: a ``vllm.LLMEngine`` in this process.
    """

    def __init__(
        self,
        llm: Any,
        settings: TensorrtLlmSettings,
        config: SpeechLMConfig,
        tables: PromptTables,
        statistics: VllmStatistics,
    ) -> None:
        from vllm.inputs.engine import embeds_input
        from vllm.utils.torch_utils import current_stream

        self.slots = self.prefill_batch = settings.max_slots  # The library plans its own passes.
        self._llm = llm
        self._make_input = embeds_input
        self._use_stream = current_stream
        self._config = config
        self._tables = tables
        self._statistics = statistics
        self._max_len = settings.max_sequence_tokens
        self._running: dict[int, Generation] = {}
        self._handles = itertools.count()

    def add(self, prompt: Prompt, options: SamplingOptions) -> int:
        prompt.check(self._config)
        embeddings = self._tables.embed(prompt.segments())
        room = self._room(len(embeddings), options)
        limits = TokenLimits.of(options, len(prompt.text))
        generation = Generation(self._config, options, prompt.prompt_speech, limits)
        seeded = dataclasses.replace(options, seed=generation.seed)
        utterance = VllmUtterance(seeded, prompt.prompt_speech, limits)
        most = max(1, min(limits.max_tokens, room))
        handle = next(self._handles)
        self._llm.add_request(str(handle), self._make_input(embeddings), self.params(utterance, most))
        self._running[handle] = generation
        return handle

    def params(self, utterance: VllmUtterance, most: int) -> Any:
        """``vllm.SamplingParams`` of an utterance with at most so many ids, which the `SpeechSampler`
        draws."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=0.0,  # Greedy choice takes the one id that the sampler leaves.
            max_tokens=most,
            stop_token_ids=[*self._config.stop_ids, not_finite_id(self._config)],
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args=utterance.as_extra_args(),
            skip_clone=True,
        )

    def step(self) -> list[Progress]:
        # vLLM keeps one stream per thread, and its work would be spread over two if it met this thread's
        # only half-way through a step.
        self._use_stream()
        begin = perf_counter()
        outputs = self._llm.step()
        self._statistics.step.observe(perf_counter() - begin)
        progress = [self._advance(output) for output in outputs]
        self._show_load()
        return progress

    def cancel(self, handle: Hashable) -> None:
        assert isinstance(handle, int)
        del self._running[handle]
        self._llm.abort_request([str(handle)])
        self._show_load()

    def close(self) -> None:
        self._llm.engine_core.shutdown()
        del self._llm
        gc.collect()  # vLLM's objects refer to each other, and hold the GPU's memory.
        torch.cuda.empty_cache()

    def _show_load(self) -> None:
        scheduler = self._llm.engine_core.engine_core.scheduler
        self._statistics.requests.set(len(self._running))
        self._statistics.cache.set(scheduler.kv_cache_manager.usage)

    def _room(self, positions: int, options: SamplingOptions) -> int:
        room = self._max_len - positions
        if room < 1:
            raise InvalidInput("prompt", f"{positions} positions", f"fewer than {self._max_len}")
        check_room(options, room)
        return room

    def _advance(self, output: Any) -> Progress:
        handle, (completion,) = int(output.request_id), output.outputs
        generation = self._running[handle]
        tokens = [
            token for id_ in completion.token_ids if (token := self._accept(generation, id_)) is not None
        ]
        if output.finished:
            _finish(generation, completion.finish_reason)
        if generation.finish_reason is not None:
            del self._running[handle]
            if not output.finished:
                self._llm.abort_request([output.request_id])
        return Progress(handle, tokens, generation.finish_reason, generation.error)

    def _accept(self, generation: Generation, id_: int) -> int | None:
        return generation.accept(NOT_FINITE if id_ == not_finite_id(self._config) else id_)


def _finish(generation: Generation, reason: str) -> None:
    """End with vLLM's reason, unless the tokens have ended the utterance already."""
    if reason == "length":
        generation.finish(FinishReason.LENGTH)
    else:
        failure = CosyVoiceError(f"vLLM ended this utterance ({reason})")
        generation.finish(FinishReason.ERROR, failure)


def prepare(settings: TensorrtLlmSettings) -> OpenEngine:
    """Check the export and the settings, as `engine.prepare_engine` says; an engine reads weights as it
    opens.

    Raises:
        InvalidInput: the needed release of vLLM is not installed, or a setting does not fit.
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
    """The arguments of ``vllm.EngineArgs``; vLLM wants the cache's share of ``gpu_bytes`` to be free when it
    starts."""
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
    """Start a ``vllm.LLMEngine`` in this process."""
    os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "0"  # vLLM's own sampler draws nothing here.
    from vllm import EngineArgs, LLMEngine
    from vllm.v1.executor import Executor

    register()
    vllm_config = EngineArgs(**args).create_engine_config()
    # In this process: a step is a few milliseconds, and messages to another one would be added to each.
    return LLMEngine(vllm_config, Executor.get_class(vllm_config), log_stats=False, multiprocess_mode=False)


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
    engine = VllmEngine(llm, settings, config, tables, statistics)
    _warm_up(engine)
    return engine


def _warm_up(engine: VllmEngine) -> None:
    """Speak two tokens: vLLM compiles some kernels with its first prompt, and others with the next token."""
    engine.add(Prompt([0]), SamplingOptions("greedy", min_tokens=2, max_tokens=2))
    while all(each.finish_reason is None for each in engine.step()):
        pass
    torch.cuda.synchronize()  # Further steps come from another thread, on its own stream.
