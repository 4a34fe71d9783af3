"""The load of the speech LM's scheduler, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.metrics import Metric, Metrics


class Load(NamedTuple):
    """The load of the scheduler.

    Attributes:
        active: requests that hold a slot.
        waiting: requests that wait for one.
        tokens_per_step: speech tokens of the last step; 0 when idle.
        tokens: speech tokens drawn so far.
        finished: requests ended so far, by reason.
        steps: number of steps so far.
        step_s: seconds that they took.
    """

    active: int
    waiting: int
    tokens_per_step: int
    tokens: int
    finished: Mapping[FinishReason, int]
    steps: int = 0
    step_s: float = 0.0


class LoadMetrics:
    """Gauges of the batch, and counters that grow while streams run; written when they change.

    A scheduler calls it with its load; one object serves one scheduler, from one thread at a time.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._gauges = {
            "active": metrics.gauge("cosyvoice_lm_active_slots", "Requests being decoded."),
            "waiting": metrics.gauge("cosyvoice_lm_waiting_requests", "Requests that wait for a slot."),
            "tokens_per_step": metrics.gauge(
                "cosyvoice_lm_tokens_per_step", "Speech tokens of the last step."
            ),
        }
        self._counters = {
            "tokens": metrics.counter("cosyvoice_lm_tokens_total", "Speech tokens drawn."),
            "steps": metrics.counter("cosyvoice_lm_steps_total", "Steps of the batch."),
            "step_s": metrics.counter("cosyvoice_lm_step_seconds_total", "Seconds that the steps took."),
        }
        self._finished = {
            reason: metrics.counter("cosyvoice_lm_finished_total", "Ended requests.", reason=reason.value)
            for reason in FinishReason
        }
        self._told = Load(0, 0, 0, 0, {})

    def __call__(self, load: Load) -> None:
        told, self._told = self._told, load
        for name, gauge in self._gauges.items():
            if getattr(load, name) != getattr(told, name):
                gauge.set(getattr(load, name))
        # Counters get what is new, so that they go on from where an earlier scheduler left them.
        for name, counter in self._counters.items():
            _grow(counter, getattr(load, name) - getattr(told, name))
        for reason, count in load.finished.items():
            _grow(self._finished[reason], count - told.finished.get(reason, 0))


def _grow(counter: Metric, amount: float) -> None:
    if amount:
        counter.add(amount)
