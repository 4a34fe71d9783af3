"""TensorRT-LLM's executor as an `LmEngine`, and its statistics as metrics."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import FinishReason, Generation, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.tensorrt_llm.requests import LibrarySampler, RequestMaker, drawn_by_library
from cosyvoice_runtime.lm.generation import Progress, TokenLimits
from cosyvoice_runtime.metrics import Metrics

logger = logging.getLogger(__name__)

PERIOD_S = 0.25
ITERATION_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class TrtllmStatistics:
    """The statistics of an executor as metrics.

    Args:
        wanted_tokens: positions that the cache should hold; the log tells of a smaller one.
        clock: seconds.
    """

    def __init__(
        self, metrics: Metrics, wanted_tokens: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wanted_tokens = wanted_tokens
        self._clock = clock
        self._due = -float("inf")
        self._active = metrics.gauge("cosyvoice_trtllm_active_requests", "Requests in the executor's batch.")
        self._queued = metrics.gauge("cosyvoice_trtllm_queued_requests", "Requests that the executor queues.")
        self._gpu_bytes = metrics.gauge("cosyvoice_trtllm_gpu_bytes", "GPU memory held by the executor.")
        self._max_blocks = metrics.gauge("cosyvoice_trtllm_kv_blocks", "Blocks of the KV cache.")
        self._used_blocks = metrics.gauge("cosyvoice_trtllm_kv_blocks_used", "Blocks of the KV cache in use.")
        self._reused_blocks = metrics.counter(
            "cosyvoice_trtllm_kv_blocks_reused_total", "Blocks of prompts found in the KV cache."
        )
        self._iteration = metrics.histogram(
            "cosyvoice_trtllm_iteration_seconds", "Duration of an iteration.", ITERATION_BUCKETS_S
        )

    def update(self, executor: Any, now: bool = False) -> None:
        """Read new statistics, at most every ``PERIOD_S`` unless ``now``."""
        time_s = self._clock()
        if not now and time_s < self._due:
            return
        self._due = time_s + PERIOD_S
        iterations = executor.get_latest_iteration_stats()
        for iteration in iterations:
            if iteration.iter_latency_ms > 0:  # The first time after a pause is 0.
                self._iteration.observe(iteration.iter_latency_ms / 1000)
        if iterations:
            self._show(iterations[-1])

    def rest(self) -> None:
        """Show that the executor has nothing to do."""
        self._active.set(0)
        self._queued.set(0)

    def _show(self, iteration: Any) -> None:
        self._active.set(iteration.num_active_requests)
        self._queued.set(iteration.num_queued_requests)
        self._gpu_bytes.set(iteration.gpu_mem_usage)
        if iteration.kv_cache_stats is not None:
            self._show_cache(iteration.kv_cache_stats)

    def _show_cache(self, cache: Any) -> None:
        held = cache.max_num_blocks * cache.tokens_per_block
        if self._max_blocks.value != cache.max_num_blocks and held < self._wanted_tokens:
            logger.warning(
                "the KV cache holds %d positions, not the %d of kv_cache_tokens: "
                "half of the free GPU memory is less",
                held,
                self._wanted_tokens,
            )
        self._max_blocks.set(cache.max_num_blocks)
        self._used_blocks.set(cache.used_num_blocks)
        self._reused_blocks.set(cache.reused_blocks)


WAIT = timedelta(seconds=0.5)
"""Longest wait for a response. An executor that decodes answers every iteration; after this wait for one that
is stuck, waiting and cancelled requests are looked at."""


@dataclass
class TrtllmSequence:
    """A request in the executor.

    Attributes:
        client: its name for the `LibrarySampler`.
        left: whether its reader has left, and its last response is still to come.
    """

    generation: Generation
    client: int
    left: bool = False


class TrtllmEngine:
    """An executor that decodes in a thread of its own; handles are its request ids.

    The executor takes new and cancelled requests between two iterations, when `step` returns. A request that
    comes during an iteration takes effect with the next but one.

    Args:
        bindings: module ``tensorrt_llm.bindings.executor``.
        config: its text ids are those of the engine's vocabulary.
    """

    def __init__(
        self,
        bindings: Any,
        executor: Any,
        config: SpeechLMConfig,
        requests: RequestMaker,
        sampler: LibrarySampler,
        statistics: TrtllmStatistics,
        slots: int,
    ) -> None:
        self.slots = slots
        self.prefill_batch = slots  # The library plans its own passes.
        self._executor = executor
        self._config = config
        self._requests = requests
        self._sampler = sampler
        self._statistics = statistics
        self._offset = requests.vocabulary.speech_offset
        self._sequences: dict[int, TrtllmSequence] = {}
        self._clients = itertools.count(1)
        self._reasons = {
            bindings.FinishReason.END_ID: FinishReason.STOP,
            bindings.FinishReason.STOP_WORDS: FinishReason.STOP,
            bindings.FinishReason.LENGTH: FinishReason.LENGTH,
        }

    def add(self, prompt: Prompt, options: SamplingOptions) -> int:
        prompt.check(self._config)
        limits = TokenLimits.of(options, len(prompt.text))
        generation = Generation(self._config, options, prompt.prompt_speech, limits)
        client = next(self._clients)
        request = self._requests.make(prompt, options, limits, generation.seed, client)
        if drawn_by_library(options):
            self._sampler.enter(client, Generation(self._config, options, prompt.prompt_speech, limits))
        handle: int = self._executor.enqueue_request(request)
        self._sequences[handle] = TrtllmSequence(generation, client)
        return handle

    def step(self) -> list[Progress]:
        responses = self._executor.await_responses(timeout=WAIT)
        progress = [each for response in responses if (each := self._take(response)) is not None]
        self._statistics.update(self._executor, now=self._idle)
        return progress

    def cancel(self, handle: Hashable) -> None:
        assert isinstance(handle, int)
        sequence = self._sequences.get(handle)
        if sequence is None:  # The last response came in the step whose tokens the reader did not take.
            return
        sequence.left = True
        self._executor.cancel_request(handle)
        if self._idle:
            self._statistics.rest()  # No step may follow that reads the statistics.

    def close(self) -> None:
        try:
            for handle in self._sequences:
                self._executor.cancel_request(handle)  # Otherwise the shutdown waits for them.
        finally:
            self._executor.shutdown()
            del self._executor

    @property
    def _idle(self) -> bool:
        return all(sequence.left for sequence in self._sequences.values())

    def _take(self, response: Any) -> Progress | None:
        """The progress that a response brings to its utterance, if that is still wanted."""
        handle = response.request_id
        sequence = self._sequences.get(handle)
        if sequence is None:
            logger.error("TensorRT-LLM answered a request that has ended: %d", handle)
            return None
        final = response.has_error() or response.result.is_final
        error = self._sampler.leave(sequence.client) if final else None
        progress = None if sequence.left else self._advance(handle, sequence, response, error)
        if final:
            del self._sequences[handle]
        elif progress is not None and progress.finish_reason is not None:
            self.cancel(handle)
        return progress

    def _advance(
        self, handle: int, sequence: TrtllmSequence, response: Any, error: CosyVoiceError | None
    ) -> Progress:
        generation, tokens = sequence.generation, []
        if response.has_error():
            logger.error("TensorRT-LLM failed on request %d: %s", handle, response.error_msg)
            error = CosyVoiceError("TensorRT-LLM could not decode this utterance; the server's log says why")
        else:
            tokens = self._accept(generation, response.result.output_token_ids[0])
        if error is not None:
            generation.finish(FinishReason.ERROR, error)
        elif response.result.is_final:
            self._finish(generation, response.result.finish_reasons[0])
        return Progress(handle, tokens, generation.finish_reason, generation.error)

    def _accept(self, generation: Generation, ids: list[int]) -> list[int]:
        """The speech among new ids, up to the end."""
        tokens = []
        for id_ in ids:
            token = id_ - self._offset
            if not 0 <= token < self._config.speech_rows:
                failure = CosyVoiceError(f"TensorRT-LLM emitted id {id_}, which is no speech")
                generation.finish(FinishReason.ERROR, failure)
            elif generation.finish_reason is None and generation.accept(token) is not None:
                tokens.append(token)
        return tokens

    def _finish(self, generation: Generation, reason: Any) -> None:
        if reason in self._reasons:
            generation.finish(self._reasons[reason])
        else:
            failure = CosyVoiceError(f"TensorRT-LLM ended this utterance ({reason.name})")
            generation.finish(FinishReason.ERROR, failure)
