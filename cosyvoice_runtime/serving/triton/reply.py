"""Responses to one request."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.errors import ClientGoneError
from cosyvoice_runtime.serving.triton.fault import fault, stream_fault

SEND_LOCK = threading.Lock()
"""Held while a response is sent: the python backend of Triton 2.51 hangs when threads send together."""


class Reply:
    """Responses to a request, sent whenever they are there.

    Used in ``with``, it ends the request exactly once on every path, as :meth:`finish` with the exception of
    the block.

    Args:
        streamed: whether the model is decoupled; others send :meth:`send_only` or an error.
    """

    def __init__(self, request: Any, model: str, streamed: bool = True) -> None:
        self._sender = request.get_response_sender()
        self._model = model
        self._fault = stream_fault if streamed else fault
        self._outputs = frozenset(request.requested_output_names())
        self._finished = False

    @property
    def cancelled(self) -> bool:
        """Whether the client has gone or has cancelled."""
        return bool(self._sender.is_cancelled())

    def send(self, **outputs: npt.NDArray[Any]) -> None:
        """Send one response with those of the outputs that were asked for.

        Raises:
            ClientGoneError: the client has gone.
        """
        if self.cancelled:
            raise ClientGoneError
        self._pass_on(self._response(outputs), flags=0)

    def send_only(self, **outputs: npt.NDArray[Any]) -> None:
        """Send the one response of a model that is not decoupled, which is also the final one.

        Raises:
            ClientGoneError: the client has gone.
        """
        if self.cancelled:
            raise ClientGoneError
        self._pass_on(self._response(outputs), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self._finished = True

    def finish(self, error: BaseException | None = None) -> None:
        """Send the final response, once: an error, unless there is none or the client has gone."""
        if self._finished:
            return
        self._finished = True
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        if error is None or isinstance(error, ClientGoneError):
            self._pass_on(None, final)
        else:
            response = pb_utils.InferenceResponse(output_tensors=[], error=self._fault(error, self._model))
            self._pass_on(response, final)

    def __enter__(self) -> Reply:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self.finish(error)
        return error is None or isinstance(error, Exception)

    def _response(self, outputs: dict[str, npt.NDArray[Any]]) -> Any:
        wanted = self._outputs or outputs.keys()
        tensors = [pb_utils.Tensor(name, array) for name, array in outputs.items() if name in wanted]
        return pb_utils.InferenceResponse(tensors)

    def _pass_on(self, response: Any, flags: int) -> None:
        with SEND_LOCK:
            self._sender.send(response, flags=flags)


def respond(model: str, outputs: dict[str, npt.NDArray[Any]] | BaseException) -> Any:
    """The one response of a model that is not decoupled: its outputs, or the error instead."""
    if isinstance(outputs, BaseException):
        return pb_utils.InferenceResponse(output_tensors=[], error=fault(outputs, model))
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])


def answer(request: Any, model: str, outputs: dict[str, npt.NDArray[Any]] | BaseException) -> None:
    """Send that response before or after ``execute`` returns, which has None in its place."""
    final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    with SEND_LOCK:
        request.get_response_sender().send(respond(model, outputs), flags=final)
