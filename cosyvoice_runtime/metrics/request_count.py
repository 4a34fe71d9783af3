"""How many requests each model is working on, told by the models to the supervisor of their server.

Triton can't tell: it counts a finished request as in flight for as long as the client keeps its stream open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.samples import Sample

from cosyvoice_runtime.metrics.metrics import Metric, create_number, shared_directory
from cosyvoice_runtime.metrics.page import dead_gauges, read_samples, samples_of

NAME = "cosyvoice_requests_in_work"
DESCRIPTION = "Requests without their final response yet."


class RequestCount:
    """Counts the requests of one model process; thread-safe.

    Call :meth:`enter` when a request arrives, and :meth:`leave` after its final response.
    """

    def __init__(self, model: str, directory: Path | None = None) -> None:
        directory = directory or shared_directory()
        self._metric = Metric(create_number(directory, "gauge", NAME, NAME, {"model": model}, DESCRIPTION))

    @property
    def count(self) -> int:
        return int(self._metric.value)

    def enter(self, requests: int = 1) -> None:
        self._metric.add(requests)

    def leave(self, requests: int = 1) -> None:
        self._metric.add(-requests)

    @contextmanager
    def during(self, requests: int) -> Iterator[None]:
        """Count requests that are answered within the block."""
        self.enter(requests)
        try:
            yield
        finally:
            self.leave(requests)


def read_request_counts(directory: Path) -> dict[str, int]:
    """Requests in work by model, summed over its living processes; a model that tells nothing is left out."""
    return _counts(read_samples(directory))


def take_lost_counts(directory: Path) -> dict[str, int]:
    """The same of processes that died, which are told once: nobody will answer these requests any more."""
    files = dead_gauges(directory)
    counts = _counts(samples_of(files))
    for file in files:
        file.unlink(missing_ok=True)
    return counts


def _counts(samples: Iterable[Sample]) -> dict[str, int]:
    samples = [sample for sample in samples if sample.name == NAME]
    return {sample.labels["model"]: int(sample.value) for sample in samples}
