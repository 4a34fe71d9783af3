"""A request that came without Triton, as the code of a model sees it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.engine.frames import Array
from cosyvoice_runtime.errors import STATUSES
from cosyvoice_runtime.process.loop_calls import LoopCalls
from cosyvoice_runtime.serving.triton.request import CODE_NAMES

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelAnswer:
    """What a model answered, once.

    Attributes:
        model: that answered.
        outputs: by name; empty where only the end is told.
        status: of an error, one of ``STATUSES``.
        message: of an error.
    """

    model: str
    outputs: dict[str, Array]
    status: str = ""
    message: str = ""


class Answers:
    """Answers to the requests of one call, from whichever thread; made in one event loop.

    Args:
        calls: of that loop.
        send: called there with each answer, and whether it is the last. It may come without an answer.

    Attributes:
        gone: nobody reads them any more.
    """

    def __init__(self, calls: LoopCalls, send: Callable[[ModelAnswer | None, bool], None]) -> None:
        self.gone = False
        self._calls = calls
        self._send = send
        self._open = 1
        self._ended = False

    def expect(self) -> None:
        """One request more will be answered to its end."""
        self._open += 1

    def put(self, answer: ModelAnswer | None, final: bool) -> None:
        """
        Args:
            final: whether a request has been answered to its end.
        """
        self._calls.add(self.take, answer, final)

    def take(self, answer: ModelAnswer | None, final: bool) -> None:
        """The same at once, in the loop."""
        self._open -= final
        last = not self._open
        if not (self.gone or self._ended) and (last or answer is not None):
            self._ended = last  # what comes later would be taken for the next call's
            self._send(answer, last)

    def close(self) -> None:
        """No further request comes; called in the loop."""
        self.take(None, final=True)


class HostedTensor:
    """An input, as ``pb_utils`` shows one."""

    def __init__(self, name: str, array: Array) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Array:
        return self._array


class HostedRequest:
    """A request and the sender of its responses, as ``pb_utils`` shows both.

    Args:
        model: that it is for.
        name: of the request; those about one utterance have the same.
        parameters: in JSON.
    """

    def __init__(
        self, model: str, name: str, tensors: Mapping[str, Array], answers: Answers, parameters: str = ""
    ) -> None:
        self._model, self._name, self._parameters = model, name, parameters
        self._tensors = [HostedTensor(name, array) for name, array in tensors.items()]
        self._answers = answers
        answers.expect()

    def inputs(self) -> list[HostedTensor]:
        return self._tensors

    def request_id(self) -> str:
        return self._name

    def parameters(self) -> str:
        return self._parameters

    def requested_output_names(self) -> list[str]:
        return []  # all

    def get_response_sender(self) -> HostedRequest:
        return self

    def is_cancelled(self) -> bool:
        return self._answers.gone

    def send(self, response: Any = None, flags: int = 0) -> None:
        final = bool(flags & pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self._answers.put(None if response is None else _answer(self._model, response), final)


def _answer(model: str, response: Any) -> ModelAnswer:
    error = response.error()
    if error is not None:
        return ModelAnswer(model, {}, status_names().get(error.code(), "INTERNAL"), error.message())
    return ModelAnswer(model, {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()})


@cache
def status_names() -> dict[Any, str]:
    """gRPC's names of the codes that models give to their errors."""
    names = {getattr(pb_utils.TritonError, CODE_NAMES.get(name, name), None): name for name in STATUSES}
    return {code: name for code, name in names.items() if code is not None}
