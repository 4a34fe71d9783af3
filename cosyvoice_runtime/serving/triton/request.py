"""A request to a model of the python backend: its inputs, responses and errors.

Errors are a sentence and a status: no traceback, no path.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from functools import cached_property
from hmac import compare_digest
from types import TracebackType
from typing import Any

import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.errors import (
    ClientGoneError,
    InvalidInput,
    WithdrawnError,
    message_of,
    status_of,
    with_status,
)
from cosyvoice_runtime.process.headers import (
    CALL_HEADER,
    CLIENT_HEADER,
    ELSEWHERE_HEADER,
    LEFT_HEADER,
    PROBE_HEADER,
    PROBE_KEY_VARIABLE,
    REQUEST_HEADER,
    TRACEPARENT,
    TRACESTATE,
    trace_headers,
)

logger = logging.getLogger(__name__)

CODE_NAMES = {"INVALID_ARGUMENT": "INVALID_ARG", "UNIMPLEMENTED": "UNSUPPORTED"}
"""Triton's names of gRPC statuses, where they differ."""


def fault(error: BaseException, model: str, request: str = "") -> pb_utils.TritonError:
    """The error that a model which answers once sends; ``request`` names one that alone is at fault."""
    return _triton_error(status_of(error), message_of(error, model, request))


def stream_fault(error: BaseException, model: str, request: str = "") -> pb_utils.TritonError:
    """The error to send for an exception of a stream, whose text begins with the status."""
    status = status_of(error)
    return _triton_error(status, with_status(status, message_of(error, model, request)))


def _triton_error(status: str, message: str) -> pb_utils.TritonError:
    code = getattr(pb_utils.TritonError, CODE_NAMES.get(status, status), pb_utils.TritonError.INTERNAL)
    return pb_utils.TritonError(message, code)


Array = npt.NDArray[Any]


def name_of(request: Any) -> str:
    """The name of a request in logs: its id, or the name from its gateway.

    It is empty without either, and where the request can't be read, which its own error tells.
    """
    try:
        return str(request.request_id() or Inputs(request).request_name or "")
    except Exception:
        logger.debug("a request without a name that can be read", exc_info=True)
        return ""


class Inputs:
    """The inputs of one request.

    Raises (all methods):
        InvalidInput: naming the input, what was given and what is expected.
    """

    def __init__(self, request: Any) -> None:
        self._request = request
        self._tensors = {tensor.name(): tensor for tensor in request.inputs()}

    @property
    def client(self) -> str | None:
        """The client's name, if the request or a forwarded header has one."""
        return self._said(CLIENT_HEADER)

    @property
    def asks_elsewhere(self) -> bool:
        """Whether the client asks another server if this one refuses."""
        return self._said(ELSEWHERE_HEADER) is not None

    @property
    def call(self) -> str | None:
        """The call that the gateway named, if there is one."""
        return self._said(CALL_HEADER)

    @property
    def request_name(self) -> str | None:
        """The request's name from its gateway."""
        return self._said(REQUEST_HEADER)

    @property
    def trace_headers(self) -> dict[str, str]:
        """The headers of the trace that the request belongs to; empty without one."""
        return trace_headers({name: self._said(name) for name in (TRACEPARENT, TRACESTATE)})

    @property
    def left_call(self) -> str | None:
        """The call whose client has left, for a request that only reports that."""
        return self._said(LEFT_HEADER)

    @property
    def is_probe(self) -> bool:
        """Whether the supervisor sent the request, which alone knows the key of this run."""
        key, said = os.environ.get(PROBE_KEY_VARIABLE), self._said(PROBE_HEADER)
        return bool(key and said) and compare_digest(str(key).encode(), str(said).encode())

    @cached_property
    def _parameters(self) -> dict[str, Any]:
        return dict(json.loads(self._request.parameters() or "{}"))

    @property
    def tells_spoken_tokens(self) -> bool:
        """Whether answers tell their speech tokens, for which a parameter of the request asks."""
        return self._parameters.get("tell_spoken_tokens") is True

    def _said(self, name: str) -> str | None:
        """A parameter of the request, or a forwarded header."""
        # HTTP keeps the case of a header. Headers follow parameters, so the gateway's value is the last.
        values = [value for key, value in self._parameters.items() if key.lower() == name]
        return str(values[-1]) if values else None

    def array(self, name: str) -> Array | None:
        """The tensor, flattened to one dimension; None if the request has none of this name."""
        tensor = self.shaped(name)
        return None if tensor is None else tensor.reshape(-1)

    def shaped(self, name: str) -> Array | None:
        """The tensor in the shape that was sent."""
        tensor = self._tensors.get(name)
        return None if tensor is None else tensor.as_numpy()

    def required(self, name: str) -> Array:
        """The tensor by :meth:`array`, for an input that is required."""
        array = self.array(name)
        if array is None:
            raise InvalidInput(name, None, "this input is required")
        return array

    def scalar(self, name: str, default: Any = None, required: bool = False) -> Any:
        """The single value of an input as a Python number or bool."""
        array = self.required(name) if required else self.array(name)
        if array is None:
            return default
        if array.size != 1:
            raise InvalidInput(name, array.shape, "one value is expected")
        return array[0].item()

    def required_text(self, name: str) -> str:
        """The string by :meth:`text`, for an input that is required."""
        self.required(name)
        return self.text(name) or ""

    def text(self, name: str, default: str | None = None) -> str | None:
        """The single string of an input."""
        array = self.array(name)
        if array is None:
            return default
        if array.size != 1:
            raise InvalidInput(name, array.shape, "one string is expected")
        try:
            return bytes(array[0]).decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInput(name, bytes(array[0]), f"valid UTF-8 is expected ({error.reason})") from error


SEND_LOCK = threading.Lock()
"""This lock is held while a response is sent: the python backend of Triton 2.51 hangs when threads send
concurrently."""


class Reply:
    """The responses to a request, sent as soon as they are ready.

    Used in ``with``, it ends the request exactly once on every path, as :meth:`finish` with the exception of
    the block.

    Args:
        streamed: whether the model is decoupled; others send :meth:`send_only` or an error.
    """

    def __init__(self, request: Any, model: str, streamed: bool = True) -> None:
        self._sender = request.get_response_sender()
        self._model = model
        self._name = name_of(request)
        self._streamed = streamed
        self._fault = stream_fault if streamed else fault
        self._outputs = frozenset(request.requested_output_names())
        self._answered = self._finished = False
        self._ending = threading.RLock()

    @property
    def cancelled(self) -> bool:
        """Whether the client has left or has cancelled; False once the request has ended.

        The server is asked, which takes up to a millisecond.
        """
        with self._ending:  # The server frees a request with its final response, and must not be asked then.
            return not self._finished and bool(self._sender.is_cancelled())

    def send(self, **outputs: npt.NDArray[Any]) -> None:
        """Send one response with the requested outputs.

        Whoever sends several looks for the client beside them, as asking the server would hold up each one.
        The server drops what it gets for a client that has left.
        """
        self._pass_on(self._response(outputs), flags=0)

    def send_only(self, **outputs: npt.NDArray[Any]) -> None:
        """Send the only response of a model that is not decoupled, and end the request."""
        with self._ending:
            if self.cancelled:
                raise ClientGoneError
            response = self._response(outputs)
            self._answered = not self._streamed
            # The final flag is sent separately: if the server has no memory for the response, its sender is
            # closed.
            self._pass_on(response, flags=0)
            self.finish()

    def finish(self, error: BaseException | None = None) -> None:
        """Send the final response once, with an error if there is one. A client that has left gets none."""
        with self._ending:
            if not self._finished:
                self._finished = True
                self._end(error)

    def _end(self, error: BaseException | None) -> None:
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        # A model that is not decoupled must send a response at the end.
        if isinstance(error, ClientGoneError):
            error = None if self._streamed else WithdrawnError("the client has left")
        if error is not None and self._answered:  # The server accepts no second response, and needs none.
            text = "the response of %s to request %s could not be sent"
            logger.error(text, self._model, self._name or "-", exc_info=error)
            error = None
        if error is None:
            self._pass_on(None, final)
        else:
            response = pb_utils.InferenceResponse(
                output_tensors=[], error=self._fault(error, self._model, self._name)
            )
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


def respond(model: str, outputs: dict[str, npt.NDArray[Any]] | BaseException, request: str = "") -> Any:
    """The only response of a model that is not decoupled: its outputs, or the error."""
    if isinstance(outputs, BaseException):
        return pb_utils.InferenceResponse(output_tensors=[], error=fault(outputs, model, request))
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])


def answer(request: Any, model: str, outputs: dict[str, npt.NDArray[Any]] | BaseException) -> None:
    """Send the only response of a request for which ``execute`` returns None."""
    final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    name = name_of(request) if isinstance(outputs, BaseException) else ""
    with SEND_LOCK:
        request.get_response_sender().send(respond(model, outputs, name), flags=final)
