"""Requests from one model to another (BLS)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.triton_io.gate import GATE

Outputs = dict[str, npt.NDArray[Any]]

STATUS_BY_TEXT = (
    (r"Exceeds maximum queue size|Request timeout expired", "UNAVAILABLE"),
    (r"try again later", "UNAVAILABLE"),
    (r"is unknown; ", "NOT_FOUND"),
)
"""Statuses of known errors: a call between models loses them on the way and reports all as INTERNAL.

Names, because the server adds ``TritonError`` to the module only after it has imported the model.
"""


class CallError(Exception):
    """Another model answered with an error, which is passed on to the client."""

    def __init__(self, error: pb_utils.TritonError) -> None:
        super().__init__(error.message())
        self.triton_code = error.code()
        for pattern, status in STATUS_BY_TEXT:
            if re.search(pattern, error.message()):
                self.triton_code = getattr(pb_utils.TritonError, status)
                break


def call(model: str, inputs: Outputs, outputs: Sequence[str], request_id: str = "") -> Outputs:
    """Run a model that answers once; blocks until it does.

    Raises:
        CallError: the model refused or failed.
    """
    [answer] = stream(model, inputs, outputs, request_id)
    return answer


def stream(model: str, inputs: Outputs, outputs: Sequence[str], request_id: str = "") -> Iterator[Outputs]:
    """Run a decoupled model; each response as it comes.

    The iterator must be read to its end: the server keeps an abandoned one for ever.

    Raises:
        CallError: the model refused or failed.
    """
    request = _request(model, inputs, outputs, request_id)
    with GATE:
        # Decoupled also for a model that is not: it returns at once and waits in next(), outside the lock.
        responses = request.exec(decoupled=True)
    for response in responses:
        if response.has_error() or response.output_tensors():
            yield _outputs(response, outputs)


def _request(model: str, inputs: Outputs, outputs: Sequence[str], request_id: str) -> Any:
    return pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=list(outputs),
        inputs=[pb_utils.Tensor(name, np.ascontiguousarray(array)) for name, array in inputs.items()],
        request_id=request_id,
    )


def _outputs(response: Any, names: Sequence[str]) -> Outputs:
    if response.has_error():
        raise CallError(response.error())
    tensors = {name: pb_utils.get_output_tensor_by_name(response, name) for name in names}
    return {name: tensor.as_numpy() for name, tensor in tensors.items() if tensor is not None}
