"""A model's own numbers, each labelled with the model's name."""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from prometheus_client.utils import floatToGoString

from cosyvoice_runtime.metrics.number_files import (
    DIRECTORY_VARIABLE,
    Kind,
    Labels,
    Number,
    create_number,
    shared_directory,
)

logger = logging.getLogger(__name__)


class Metric:
    """One number; thread-safe, a few microseconds a change."""

    def __init__(self, number: Number) -> None:
        self._number = number

    @property
    def value(self) -> float:
        return self._number.get()

    def set(self, value: float) -> None:
        """Show this value; of a counter, what this object has counted in all."""
        self._number.set(value)

    def add(self, amount: float) -> None:
        self._number.inc(amount)


class Histogram:
    """How often values fell into each bucket; thread-safe.

    Args:
        total: the sum of the values.
        counts: of the values in each bucket, one more than there are bounds.
        bounds: the greatest value of each bucket.
    """

    def __init__(self, total: Number, counts: Sequence[Number], bounds: Sequence[float]) -> None:
        self._total = total
        self._counts = counts
        self._bounds = bounds

    def observe(self, value: float) -> None:
        self._total.inc(value)
        self._counts[bisect_left(self._bounds, value)].inc(1)


class Metrics:
    """Maker of one model's metrics. The supervisor serves them; without one they are kept, but not served.

    Args:
        model: shown as label ``model``.
        directory: where the supervisor looks; by default the one that it named when it started the server.
    """

    def __init__(self, model: str, directory: Path | None = None) -> None:
        self._model = model
        self._directory = directory or shared_directory()
        if self._directory is None:
            _warn_once(model)

    def gauge(self, name: str, description: str, **labels: str) -> Metric:
        """A number that goes up and down, starting at 0; the sum of those of the model's living processes."""
        return Metric(self._number("gauge", name, name, labels, description))

    def counter(self, name: str, description: str, **labels: str) -> Metric:
        """A number that only grows; shown is what dead processes counted as well.

        Raises:
            ValueError: its name does not end in ``_total``.
        """
        if not name.endswith("_total"):
            raise ValueError(f"{name}: the name of a counter ends in _total")
        return Metric(self._number("counter", name.removesuffix("_total"), name, labels, description))

    def histogram(self, name: str, description: str, buckets: Sequence[float], **labels: str) -> Histogram:
        """Counts of values by size.

        Args:
            buckets: the greatest value of each, rising; greater values have a bucket of their own.

        Raises:
            ValueError: the buckets don't rise.
        """
        bounds = [*map(float, buckets), math.inf]
        if not all(low < high for low, high in pairwise(bounds)):
            raise ValueError(f"{name}: buckets {tuple(buckets)} are not finite and rising")
        total = self._number("histogram", name, f"{name}_sum", labels, description)
        each = [labels | {"le": floatToGoString(bound)} for bound in bounds]
        counts = [self._number("histogram", name, f"{name}_bucket", one, description) for one in each]
        return Histogram(total, counts, bounds[:-1])

    def _number(self, kind: Kind, family: str, name: str, labels: Labels, description: str) -> Number:
        labels = {"model": self._model, **labels}
        return create_number(self._directory, kind, family, name, labels, description)


@cache
def _warn_once(model: str) -> None:
    logger.warning("%s: nobody serves its metrics, %s is not set", model, DIRECTORY_VARIABLE)
