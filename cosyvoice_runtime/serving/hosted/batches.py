"""Batching for a hosted model that answers a batch at a time, in place of Triton's dynamic batcher."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Protocol

import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.serving.triton.request import answer
from cosyvoice_runtime.settings.model import BatchedSettings


class BatchModel(Protocol):
    """A model that computes batches."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """The responses, one for each request."""

    def finalize(self) -> None:
        """Release the model: no request follows."""


class Batches:
    """Passes waiting requests to a model from its own thread, at most ``max_batch`` at a time.

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
        """Answer all waiting requests, and return."""
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
        """The waiting requests, as soon as there are any; empty after the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            count = min(len(self._waiting), self._settings.max_batch)
            return [self._waiting.popleft() for _ in range(count)]

    def _answer(self, batch: list[Any]) -> None:
        try:
            answers = list(zip(batch, self._model.execute(batch), strict=True))
        except Exception as error:  # After any error the requests that follow are still answered.
            for request in batch:
                answer(request, self._settings.name, error)
            return
        for request, response in answers:
            request.get_response_sender().send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
