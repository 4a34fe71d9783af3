"""Responses to one request."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any

import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.triton_io.fault import fault

logger = logging.getLogger(__name__)


class ClientGoneError(Exception):
    """Nobody reads the responses any more; stop working on the request."""


class Reply:
    """Responses of a decoupled model. Used in ``with``, it ends the request exactly once on every path.

    An exception inside the block becomes an error response, except :class:`ClientGoneError`.
    """

    def __init__(self, request: Any, model: str) -> None:
        self._sender = request.get_response_sender()
        self._model = model
        self._outputs = frozenset(request.requested_output_names())

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
        tensors = [pb_utils.Tensor(name, array) for name, array in outputs.items() if self._wants(name)]
        self._sender.send(pb_utils.InferenceResponse(tensors))

    def __enter__(self) -> Reply:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        if error is None or isinstance(error, ClientGoneError):
            self._sender.send(flags=final)
        else:
            response = pb_utils.InferenceResponse(output_tensors=[], error=fault(error, self._model))
            self._sender.send(response, flags=final)
        return error is None or isinstance(error, Exception)

    def _wants(self, name: str) -> bool:
        return not self._outputs or name in self._outputs


def respond(model: str, outputs: dict[str, npt.NDArray[Any]] | BaseException) -> Any:
    """The one response of a model that is not decoupled: its outputs, or the error instead."""
    if isinstance(outputs, BaseException):
        return pb_utils.InferenceResponse(output_tensors=[], error=fault(outputs, model))
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])
