"""What the service of one device holds and has done, as metrics."""

from __future__ import annotations

from collections import Counter
from functools import partial

from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.serving.token2wav.usage import Usage

ROWS = (*range(1, 9), 12, 16, 24, 32, 48, 64)


class WaveMetrics:
    """
    Args:
        device: label of all of them.
    """

    def __init__(self, metrics: Metrics, device: str) -> None:
        gauge = partial(metrics.gauge, device=device)
        counter = partial(metrics.counter, device=device)
        lookups = "cosyvoice_token2wav_voice_lookups_total", "Utterances by whether their voice was computed."
        self._shown = {
            "utterances": gauge("cosyvoice_token2wav_utterances", "Utterances in progress."),
            "voices": gauge("cosyvoice_token2wav_voices", "Voices in memory."),
            "voice_pages": gauge("cosyvoice_token2wav_voice_pages", "Flow pages that voices hold."),
            "pages_in_use": gauge("cosyvoice_token2wav_pages_in_use", "Flow pages in use."),
            "pages": gauge("cosyvoice_token2wav_pages", "Flow pages there are."),
            "recomputes": counter("cosyvoice_token2wav_recomputes_total", "Utterances without a free page."),
            "eager_calls": counter(
                "cosyvoice_token2wav_eager_calls_total", "Calls of the flow that no CUDA graph held."
            ),
            "voice_hits": counter(*lookups, result="hit"),
            "voice_misses": counter(*lookups, result="miss"),
        }
        self._waiting = gauge("cosyvoice_token2wav_waiting", "Chunks that wait or are being computed.")
        self._rows = metrics.histogram(
            "cosyvoice_token2wav_turn_rows", "Utterances computed in one turn.", ROWS, device=device
        )
        self._observed: Counter[int] = Counter()

    def show(self, usage: Usage) -> None:
        for name, metric in self._shown.items():
            metric.set(getattr(usage, name))
        for rows, count in usage.batches.items():
            for _ in range(count - self._observed[rows]):
                self._rows.observe(rows)
        self._observed = Counter(usage.batches)

    def show_waiting(self, chunks: int) -> None:
        self._waiting.set(chunks)
