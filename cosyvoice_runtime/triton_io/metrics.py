"""A model's own numbers on the server's metrics page, each labelled with the model's name."""

from __future__ import annotations

import threading

import triton_python_backend_utils as pb_utils


class Metric:
    """One number; any thread may change it. Every change is a message to the server, about 0.1 ms."""

    def __init__(self, family: pb_utils.MetricFamily, labels: dict[str, str]) -> None:
        self._family = family  # the server forgets a metric with the last reference to its family
        self._metric = family.Metric(labels=labels)
        self._lock = threading.Lock()
        self._value = 0.0

    def set(self, value: float) -> None:
        """Show this value; only a gauge goes down. Costs nothing if it is shown already."""
        with self._lock:
            if value != self._value:
                self._metric.increment(value - self._value)
                self._value = value

    def add(self, amount: float) -> None:
        with self._lock:
            self._metric.increment(amount)
            self._value += amount


class Metrics:
    """Maker of one model's metrics."""

    def __init__(self, model: str) -> None:
        self._labels = {"model": model}
        self._families: dict[str, pb_utils.MetricFamily] = {}

    def gauge(self, name: str, description: str, **labels: str) -> Metric:
        """A number that goes up and down, starting at 0."""
        return self._metric(name, description, pb_utils.MetricFamily.GAUGE, labels)

    def counter(self, name: str, description: str, **labels: str) -> Metric:
        """A number that only grows, starting at 0."""
        return self._metric(name, description, pb_utils.MetricFamily.COUNTER, labels)

    def _metric(self, name: str, description: str, kind: object, labels: dict[str, str]) -> Metric:
        if name not in self._families:
            self._families[name] = pb_utils.MetricFamily(name, description, kind)
        return Metric(self._families[name], self._labels | labels)
