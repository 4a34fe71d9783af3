"""A request that arrived without Triton, in the form that model code expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.engine.frames import Array
from cosyvoice_runtime.errors import STATUSES
from cosyvoice_runtime.process.event_loop import LoopCalls
from cosyvoice_runtime.serving.triton.request import CODE_NAMES


@dataclass(frozen=True)
class ModelAnswer:
    """One answer of a model: output arrays by name, or an error with one of ``STATUSES``."""

    model: str
    outputs: dict[str, Array]
    status: str = ""
    message: str = ""


class Answers:
    """Brings a request's answers from all threads into an event loop; made in that loop.

    Args:
        calls: calls into the loop.
        send: called in the loop with each answer, or with none, and whether it is the last.

    Attributes:
        gone: whether the caller has left.
    """

    def __init__(self, calls: LoopCalls, send: Callable[[ModelAnswer | None, bool], None]) -> None:
        self.gone = False
        self._calls = calls
        self._send = send
        self._ended = False

    def put(self, answer: ModelAnswer | None, last: bool) -> None:
        """Add an answer from any thread."""
        self._calls.add(self.take, answer, last)

    def take(self, answer: ModelAnswer | None, last: bool) -> None:
        """Add an answer at once, in the loop."""
        if not (self.gone or self._ended) and (last or answer is not None):
            self._ended = last  # A later answer would be taken for one of the next call.
            self._send(answer, last)


class HostedTensor:
    """An input tensor with the interface of ``pb_utils``."""

    def __init__(self, name: str, array: Array) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Array:
        return self._array


class HostedRequest:
    """A request and its response sender, with the interface of ``pb_utils``; ``parameters`` are JSON."""

    def __init__(
        self, model: str, name: str, tensors: Mapping[str, Array], answers: Answers, parameters: str = ""
    ) -> None:
        self._model, self._name, self._parameters = model, name, parameters
        self._tensors = [HostedTensor(name, array) for name, array in tensors.items()]
        self._answers = answers

    def inputs(self) -> list[HostedTensor]:
        return self._tensors

    def request_id(self) -> str:
        return self._name

    def parameters(self) -> str:
        return self._parameters

    def requested_output_names(self) -> list[str]:
        return []  # An empty list requests all outputs.

    def get_response_sender(self) -> HostedRequest:
        return self

    def is_cancelled(self) -> bool:
        return self._answers.gone

    def send(self, response: Any = None, flags: int = 0) -> None:
        last = bool(flags & pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self._answers.put(None if response is None else _answer(self._model, response), last)


def _answer(model: str, response: Any) -> ModelAnswer:
    error = response.error()
    if error is not None:
        return ModelAnswer(model, {}, status_names().get(error.code(), "INTERNAL"), error.message())
    return ModelAnswer(model, {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()})


@cache
def status_names() -> dict[Any, str]:
    """The gRPC names of the error codes that models use."""
    names = {getattr(pb_utils.TritonError, CODE_NAMES.get(name, name), None): name for name in STATUSES}
    return {code: name for code, name in names.items() if code is not None}
