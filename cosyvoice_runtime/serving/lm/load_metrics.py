"""What the speech LM's scheduler is busy with, and how others get to know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.metrics import Metrics


class Load(NamedTuple):
    """What the scheduler is busy with.

    Attributes:
        active: requests that hold a slot.
        waiting: requests that wait for one.
        tokens_per_step: drawn in the last step; 0 when idle.
        tokens: speech tokens drawn so far.
        finished: requests ended so far, by reason.
        steps: made so far.
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
        self._steps = metrics.counter("cosyvoice_lm_steps_total", "Steps of the batch.")
        self._step_s = metrics.counter("cosyvoice_lm_step_seconds_total", "Seconds that the steps took.")
        self._told_tokens = self._told_steps = 0
        self._told_step_s = 0.0
        self._told_finished: Counter[FinishReason] = Counter()

    def __call__(self, load: Load) -> None:
        self._active.set(load.active)
        self._waiting.set(load.waiting)
        self._per_step.set(load.tokens_per_step)
        # Counters get what is new, so that they go on from where an earlier scheduler left them.
        self._tokens.add(load.tokens - self._told_tokens)
        self._steps.add(load.steps - self._told_steps)
        self._step_s.add(load.step_s - self._told_step_s)
        self._told_tokens, self._told_steps, self._told_step_s = load.tokens, load.steps, load.step_s
        for reason, count in load.finished.items():
            self._finished[reason].add(count - self._told_finished[reason])
            self._told_finished[reason] = count
