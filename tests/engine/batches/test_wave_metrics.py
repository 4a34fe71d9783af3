"""What the service did, as metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from cosyvoice_runtime.engine.batches import Usage
from cosyvoice_runtime.engine.batches.usage import MemoryMetrics, MemoryUsage, WaveMetrics


@dataclass
class FakeMetric:
    value: float = 0.0
    observed: list[float] = field(default_factory=list)

    def set(self, value: float) -> None:
        self.value = value

    def observe(self, value: float) -> None:
        self.observed.append(value)


class FakeMetrics:
    """Metrics by name and labels."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, ...], FakeMetric] = {}

    def gauge(self, name: str, text: str, **labels: str) -> FakeMetric:
        return self.made.setdefault((name, *sorted(labels.values())), FakeMetric())

    counter = gauge

    def histogram(self, name: str, text: str, bounds: object, **labels: str) -> FakeMetric:
        return self.gauge(name, text, **labels)


def usage(**values) -> Usage:
    zeros = dict.fromkeys(Usage.__dataclass_fields__, 0)
    return Usage(**{**zeros, "batches": {}, **values})


def test_every_number_is_shown_and_each_batch_once():
    metrics = FakeMetrics()
    shown = WaveMetrics(metrics, "cuda:1")
    shown.show(usage(batches={2: 1}, eager_calls=1))
    shown.show(usage(batches={2: 1, 3: 2}, eager_calls=4, voice_hits=5, flow_calls=7))
    shown.show_batch(0.05)
    shown.show_batch(0.02, urgent=True)
    assert metrics.made["cosyvoice_token2wav_eager_calls_total", "cuda:1"].value == 4
    assert metrics.made["cosyvoice_token2wav_voice_lookups_total", "cuda:1", "hit"].value == 5
    assert metrics.made["cosyvoice_token2wav_flow_calls_total", "cuda:1"].value == 7
    assert metrics.made["cosyvoice_token2wav_turn_seconds", "cuda:1"].observed == [0.05]
    assert metrics.made["cosyvoice_token2wav_first_turn_seconds", "cuda:1"].observed == [0.02]
    assert metrics.made["cosyvoice_token2wav_turn_rows", "cuda:1"].observed == [2, 3, 3]


def test_memory_is_shown_as_it_is_then():
    metrics, usages = FakeMetrics(), iter([MemoryUsage(1, 3, 5, 9), MemoryUsage(1, 3, 3, 9)])
    shown = MemoryMetrics(metrics, "cpu", lambda: next(usages))
    shown.show()
    assert {name: metric.value for (name, _), metric in metrics.made.items()} == {
        "cosyvoice_token2wav_voices": 1,
        "cosyvoice_token2wav_voice_pages": 3,
        "cosyvoice_token2wav_pages_in_use": 5,
        "cosyvoice_token2wav_pages": 9,
    }
    shown.show()
    assert metrics.made["cosyvoice_token2wav_pages_in_use", "cpu"].value == 3
