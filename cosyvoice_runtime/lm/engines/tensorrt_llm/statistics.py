"""What the executor says about its iterations, as metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from cosyvoice_runtime.metrics import Metrics

logger = logging.getLogger(__name__)

PERIOD_S = 0.25
ITERATION_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class TrtllmStatistics:
    """
    Args:
        wanted_tokens: positions that the cache should hold; a smaller one is told in the log.
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
        """Read what is new, at most every ``PERIOD_S`` unless ``now``."""
        time_s = self._clock()
        if not now and time_s < self._due:
            return
        self._due = time_s + PERIOD_S
        iterations = executor.get_latest_iteration_stats()
        for iteration in iterations:
            if iteration.iter_latency_ms > 0:  # 0 for the first one after a pause
                self._iteration.observe(iteration.iter_latency_ms / 1000)
        if iterations:
            self._show(iterations[-1])

    def rest(self) -> None:
        """The executor has nothing to do."""
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
                "kv_cache_fraction of the free GPU memory is less",
                held,
                self._wanted_tokens,
            )
        self._max_blocks.set(cache.max_num_blocks)
        self._used_blocks.set(cache.used_num_blocks)
        self._reused_blocks.set(cache.reused_blocks)
