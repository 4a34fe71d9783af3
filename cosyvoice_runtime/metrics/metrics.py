"""A model's own numbers, each labelled with the model's name."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from cosyvoice_runtime.metrics.series import Kind, Series
from cosyvoice_runtime.metrics.shared_file import DIRECTORY_VARIABLE, create_numbers, shared_directory

logger = logging.getLogger(__name__)


class Metric:
    """One number, shown for as long as this object lives; thread-safe, about a microsecond a change."""

    def __init__(self, series: Series, directory: Path | None) -> None:
        self._numbers = create_numbers(series, directory)
        self._lock = threading.Lock()

    @property
    def value(self) -> float:
        return self._numbers[0]

    def set(self, value: float) -> None:
        """Show this value; only a gauge goes down."""
        with self._lock:
            self._numbers[0] = value

    def add(self, amount: float) -> None:
        with self._lock:
            self._numbers[0] += amount


class Histogram:
    """How often values fell into each bucket, shown for as long as this object lives; thread-safe."""

    def __init__(self, series: Series, directory: Path | None) -> None:
        self._bounds = series.bounds
        self._numbers = create_numbers(series, directory)
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        bucket = bisect_left(self._bounds, value)
        with self._lock:
            self._numbers[0] += value
            self._numbers[1 + bucket] += 1


class Metrics:
    """Maker of one model's metrics.

    The supervisor serves them. Without one they are kept, but nobody serves them: Triton's custom metrics
    are not used in any server (see :mod:`~cosyvoice_runtime.metrics.shared_file`).

    Args:
        model: shown as label ``model``.
        directory: where the supervisor looks; by default the one that it named when it started the server.
    """

    def __init__(self, model: str, directory: Path | None = None) -> None:
        self._model = model
        self._directory = directory or shared_directory()
        if self._directory is None:
            logger.warning("%s: nobody serves its metrics, %s is not set", model, DIRECTORY_VARIABLE)

    def gauge(self, name: str, description: str, **labels: str) -> Metric:
        """A number that goes up and down, starting at 0."""
        return Metric(self._series(name, "gauge", description, labels), self._directory)

    def counter(self, name: str, description: str, **labels: str) -> Metric:
        """A number that only grows, starting at 0."""
        return Metric(self._series(name, "counter", description, labels), self._directory)

    def histogram(self, name: str, description: str, buckets: Sequence[float], **labels: str) -> Histogram:
        """Counts of values by size.

        Args:
            buckets: the greatest value of each, rising; greater values have a bucket of their own.
        """
        bounds = tuple(map(float, buckets))
        return Histogram(self._series(name, "histogram", description, labels, bounds), self._directory)

    def _series(
        self, name: str, kind: Kind, description: str, labels: dict[str, str], bounds: tuple[float, ...] = ()
    ) -> Series:
        return Series(name, kind, description, (("model", self._model), *labels.items()), bounds)
