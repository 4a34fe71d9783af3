"""Tensors of a request, read by name and checked for type and shape."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.errors import InvalidInput

Array = npt.NDArray[Any]


class Inputs:
    """The inputs of one request.

    Raises (all methods):
        InvalidInput: naming the input, what was given and what is expected.
    """

    def __init__(self, request: Any) -> None:
        self._request = request

    def array(self, name: str) -> Array | None:
        """The tensor, flattened to one dimension, or None if the request has none of this name."""
        tensor = pb_utils.get_input_tensor_by_name(self._request, name)
        return None if tensor is None else tensor.as_numpy().reshape(-1)

    def shaped(self, name: str) -> Array | None:
        """The tensor in the shape that was sent."""
        tensor = pb_utils.get_input_tensor_by_name(self._request, name)
        return None if tensor is None else tensor.as_numpy()

    def required(self, name: str) -> Array:
        """Like :meth:`array`, for an input that must be there."""
        array = self.array(name)
        if array is None:
            raise InvalidInput(name, None, "this input is required")
        return array

    def scalar(self, name: str, default: Any = None, required: bool = False) -> Any:
        """The single value of an input as a Python number or bool."""
        if required:
            self.required(name)
        array = self.array(name)
        if array is None:
            return default
        if array.size != 1:
            raise InvalidInput(name, array.shape, "one value is expected")
        return array[0].item()

    def required_text(self, name: str) -> str:
        """Like :meth:`text`, for an input that must be there."""
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
