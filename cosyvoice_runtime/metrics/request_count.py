"""The number of requests in progress, which each model reports to the supervisor.

Triton can't tell: it counts a finished request as in flight for as long as the client keeps its stream open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cosyvoice_runtime.metrics.metrics import Metric, create_number, shared_directory

IN_WORK, IN_WORK_ABOUT = "cosyvoice_requests_in_work", "Requests without their final response yet."
REQUESTS, REQUESTS_ABOUT = "cosyvoice_requests_total", "Requests by how they ended."
REFUSED = "refused"
"""The label ``ending`` of requests without capacity; gateways count most of them for the model."""


class RequestCount:
    """Counts the requests of one model process; thread-safe.

    Call :meth:`enter` when a request arrives, and :meth:`leave` after its final response.
    """

    def __init__(self, model: str, directory: Path | None = None) -> None:
        directory = directory or shared_directory()
        self._metric = Metric(
            create_number(directory, "gauge", IN_WORK, IN_WORK, {"model": model}, IN_WORK_ABOUT)
        )

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
