"""Batches for a model that answers them whole, where Triton's dynamic batcher is not in between."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Protocol

import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.serving.triton.request import answer
from cosyvoice_runtime.settings.model import BatchedSettings


class BatchModel(Protocol):
    """What answers."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response for each request."""

    def finalize(self) -> None:
        """No request comes any more."""


class Batches:
    """A thread that gives a model what waits, at most ``max_batch`` requests at a time.

    One request more than ``max_queue_size`` is refused with UNAVAILABLE.
    """

    def __init__(self, model: BatchModel, settings: BatchedSettings) -> None:
        self._model = model
        self._settings = settings
        self._waiting: deque[Any] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=settings.name, daemon=True)
        self._thread.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            if not self._accept(request):
                limit = f"max_queue_size: {self._settings.max_queue_size} requests wait; try again later"
                answer(request, self._settings.name, OverloadedError(limit))

    def finalize(self) -> None:
        """Return when all that waits is answered."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self._model.finalize()

    def _accept(self, request: Any) -> bool:
        with self._changed:
            accepted = len(self._waiting) < self._settings.max_queue_size and not self._closed
            if accepted:
                self._waiting.append(request)
                self._changed.notify()
        return accepted

    def _run(self) -> None:
        while batch := self._next():
            self._answer(batch)

    def _next(self) -> list[Any]:
        """What waits, as soon as something does; empty when nothing comes any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            count = min(len(self._waiting), self._settings.max_batch)
            return [self._waiting.popleft() for _ in range(count)]

    def _answer(self, batch: list[Any]) -> None:
        try:
            answers = list(zip(batch, self._model.execute(batch), strict=True))
        except Exception as error:  # of whatever kind: the requests after these go on
            for request in batch:
                answer(request, self._settings.name, error)
            return
        for request, response in answers:
            request.get_response_sender().send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
