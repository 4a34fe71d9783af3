"""A stand-in for what Triton gives to Python models: tensors, responses and errors, as far as they are used.

Every response is remembered by its sender.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class TritonError(Exception):
    INTERNAL, INVALID_ARG, NOT_FOUND, UNAVAILABLE = range(4)

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        super().__init__(message)
        self._code = code

    def code(self) -> int:
        return self._code

    def message(self) -> str:
        return str(self)


class Tensor:
    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        assert isinstance(array, np.ndarray)
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self._array


class InferenceResponse:
    def __init__(self, output_tensors: Sequence[Tensor], error: TritonError | None = None) -> None:
        self._tensors, self._error = list(output_tensors), error

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def error(self) -> TritonError | None:
        return self._error


class ResponseSender:
    """
    Attributes:
        responses: sent so far.
        flags: of each sending, that without a response included.
    """

    def __init__(self) -> None:
        self.responses: list[InferenceResponse] = []
        self.flags: list[int] = []

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        self.flags.append(flags)
        if response is not None:
            self.responses.append(response)

    def is_cancelled(self) -> bool:
        return False


class InferenceRequest:
    def __init__(
        self, tensors: Mapping[str, np.ndarray[Any, Any]], request_id: str = "", parameters: str = ""
    ) -> None:
        self.tensors = {name: Tensor(name, array) for name, array in tensors.items()}
        self.sender = ResponseSender()
        self._id = request_id
        self._parameters = parameters

    def parameters(self) -> str:
        return self._parameters

    def inputs(self) -> list[Tensor]:
        return list(self.tensors.values())

    def request_id(self) -> str:
        return self._id

    def requested_output_names(self) -> list[str]:
        return []

    def get_response_sender(self) -> ResponseSender:
        return self.sender
