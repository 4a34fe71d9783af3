"""Metrics of token2wav's batches, utterances and memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from cosyvoice_runtime.metrics import Metrics


@dataclass(frozen=True)
class MemoryUsage:
    """The memory that one scheduler holds, or several that share it.

    Attributes:
        voices: voices known by key.
        voice_pages: pages held by voices, which remain when no utterance is in progress.
        pages_in_use: pages held by voices and utterances.
        pages: number of all pages.
    """

    voices: int
    voice_pages: int
    pages_in_use: int
    pages: int


@dataclass(frozen=True)
class Usage:
    """The present and past work of a scheduler.

    Attributes:
        utterances: utterances in progress.
        recomputes: utterances so far that found no free page and recompute their earlier chunks.
        flow_calls: calls of the flow so far.
        eager_calls: calls of the flow and of TensorRT engines outside CUDA graphs so far, where there are
            graphs.
        batches: calls of the networks so far, by number of utterances.
        voice_hits: utterances so far whose voice had been computed before.
        voice_misses: utterances so far whose voice had not.
    """

    utterances: int
    recomputes: int
    flow_calls: int
    eager_calls: int
    batches: Mapping[int, int]
    voice_hits: int
    voice_misses: int


ROWS = (*range(1, 9), 12, 16, 24, 32, 48, 64)
BATCH_S = (0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
"""Bounds of the histograms."""


class WaveMetrics:
    """Metrics of a scheduler, with its device as a label."""

    def __init__(self, metrics: Metrics, device: str) -> None:
        gauge = partial(metrics.gauge, device=device)
        counter = partial(metrics.counter, device=device)
        lookups = "cosyvoice_token2wav_voice_lookups_total", "Utterances by whether their voice was computed."
        self._shown = {
            "utterances": gauge("cosyvoice_token2wav_utterances", "Utterances in progress."),
            "recomputes": counter("cosyvoice_token2wav_recomputes_total", "Utterances without a free page."),
            "flow_calls": counter("cosyvoice_token2wav_flow_calls_total", "Calls of the flow."),
            "eager_calls": counter("cosyvoice_token2wav_eager_calls_total", "Calls that no CUDA graph held."),
            "voice_hits": counter(*lookups, result="hit"),
            "voice_misses": counter(*lookups, result="miss"),
        }
        self._waiting = gauge("cosyvoice_token2wav_waiting", "Chunks that wait or are being computed.")
        self._held = gauge(
            "cosyvoice_token2wav_waiting_for_pages", "Utterances that have not begun for want of pages."
        )
        self._rows = metrics.histogram(
            "cosyvoice_token2wav_turn_rows", "Utterances computed in one batch.", ROWS, device=device
        )
        self._batch_s = metrics.histogram(
            "cosyvoice_token2wav_turn_seconds", "Time of a batch.", BATCH_S, device=device
        )
        self._urgent_s = metrics.histogram(
            "cosyvoice_token2wav_first_turn_seconds",
            "Time of a batch of first chunks and other urgent ones.",
            BATCH_S,
            device=device,
        )
        self._observed: Counter[int] = Counter()

    def show(self, usage: Usage) -> None:
        for name, metric in self._shown.items():
            metric.set(getattr(usage, name))
        for rows, count in usage.batches.items():
            for _ in range(count - self._observed[rows]):
                self._rows.observe(rows)
        self._observed = Counter(usage.batches)

    def show_batch(self, seconds: float, urgent: bool = False) -> None:
        """Show that a batch has ended, and whether it was one of urgent chunks."""
        (self._urgent_s if urgent else self._batch_s).observe(seconds)

    def show_waiting(self, chunks: int) -> None:
        self._waiting.set(chunks)

    def show_held(self, utterances: int) -> None:
        self._held.set(utterances)


class MemoryMetrics:
    """Metrics of the memory of schedulers.

    Args:
        device: label of all of them.
        read: called from any thread.
    """

    def __init__(self, metrics: Metrics, device: str, read: Callable[[], MemoryUsage]) -> None:
        gauge = partial(metrics.gauge, device=device)
        self._shown = {
            "voices": gauge("cosyvoice_token2wav_voices", "Voices in memory."),
            "voice_pages": gauge("cosyvoice_token2wav_voice_pages", "Flow pages that voices hold."),
            "pages_in_use": gauge("cosyvoice_token2wav_pages_in_use", "Flow pages in use."),
            "pages": gauge("cosyvoice_token2wav_pages", "Flow pages there are."),
        }
        self._read = read
        self._lock = threading.Lock()

    def show(self) -> None:
        """Show what is held, after every change."""
        with self._lock:  # The last of two threads shows the newest usage.
            usage = self._read()
            for name, metric in self._shown.items():
                metric.set(getattr(usage, name))
