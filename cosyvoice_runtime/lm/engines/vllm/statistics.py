"""What vLLM's engine is busy with, as metrics."""

from __future__ import annotations

from cosyvoice_runtime.metrics import Metrics

STEP_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class VllmStatistics:
    """vLLM's own statistics would come with a Prometheus registry and a log of theirs."""

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.gauge("cosyvoice_vllm_active_requests", "Requests in vLLM's engine.")
        self._cache = metrics.gauge("cosyvoice_vllm_kv_cache_usage", "Share of the KV cache in use, 0 to 1.")
        self._step = metrics.histogram("cosyvoice_vllm_step_seconds", "Duration of a step.", STEP_BUCKETS_S)

    def step(self, seconds: float) -> None:
        """A step has taken so long."""
        self._step.observe(seconds)

    def load(self, requests: int, cache_usage: float) -> None:
        """What is there after a step or a cancellation."""
        self._requests.set(requests)
        self._cache.set(cache_usage)
