"""The scheduler's load as metrics."""

from __future__ import annotations

from collections import Counter

from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.serving.lm.scheduler import Load


class LoadMetrics:
    """Gauges of the batch, and counters that grow while streams run.

    A scheduler calls it with its load; one object serves one scheduler, from one thread at a time.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._active = metrics.gauge("cosyvoice_lm_active_slots", "Requests being decoded.")
        self._waiting = metrics.gauge("cosyvoice_lm_waiting_requests", "Requests that wait for a slot.")
        self._per_step = metrics.gauge("cosyvoice_lm_tokens_per_step", "Speech tokens of the last step.")
        self._tokens = metrics.counter("cosyvoice_lm_tokens_total", "Speech tokens drawn.")
        self._finished = {
            reason: metrics.counter("cosyvoice_lm_finished_total", "Ended requests.", reason=reason.value)
            for reason in FinishReason
        }
        self._told_tokens = 0
        self._told_finished: Counter[FinishReason] = Counter()

    def __call__(self, load: Load) -> None:
        self._active.set(load.active)
        self._waiting.set(load.waiting)
        self._per_step.set(load.tokens_per_step)
        # Counters get what is new, so that they go on from where an earlier scheduler left them.
        self._tokens.add(load.tokens - self._told_tokens)
        self._told_tokens = load.tokens
        for reason, count in load.finished.items():
            self._finished[reason].add(count - self._told_finished[reason])
            self._told_finished[reason] = count
