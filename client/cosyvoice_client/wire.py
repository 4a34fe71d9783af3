"""Requests to Triton, and its answers, as messages of gRPC."""

from __future__ import annotations

import re
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import InferResult, service_pb2
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from cosyvoice_client.errors import ClientError, LostError, server_error
from cosyvoice_client.request import Tensors

EMPTY_FINAL = "triton_enable_empty_final_response"
"""Parameter of a request that makes Triton answer it at its end even where nothing is left to say."""
FINAL = "triton_final_response"
"""Parameter of a response that is the last one of its request."""


TELL_TOKENS = "tell_spoken_tokens"
"""Parameter of a request that makes its answers tell the speech tokens; an older server ignores it."""


def infer_request(
    model: str, tensors: Tensors, request_id: str, empty_final: bool = False, tells_tokens: bool = False
) -> Any:
    """A ``ModelInferRequest``.

    Args:
        tensors: numbers, or objects that are bytes, by the names of the inputs.
        empty_final: whether the end of the request is answered where nothing is left to say.
        tells_tokens: whether answers tell the speech tokens.
    """
    request = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    for name, array in tensors.items():
        request.inputs.add(name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
        content = serialize_byte_tensor(array).item() if array.dtype == np.object_ else array.tobytes()
        request.raw_input_contents.append(content)
    if empty_final:
        request.parameters[EMPTY_FINAL].bool_param = True
    if tells_tokens:
        request.parameters[TELL_TOKENS].bool_param = True
    return request


NAME_HEADER = "x-client-id"
"""Names a client; those without it can't be told apart."""
ELSEWHERE_HEADER = "x-asks-elsewhere"
"""Says that a refused request goes to another server, so that no place is kept for it."""
REQUEST_HEADER = "x-request-id"
"""Names the request, and stands in the trailing metadata of each call that a gateway of this product ends."""
LOST = re.compile(
    r"RST_STREAM|stream removed|socket closed|broken pipe|connection reset|GOAWAY|recvmsg|ping timeout|"
    r"keepalive|connection termination|upstream (?:connect|reset|request)|transport|internal error from core",
    re.IGNORECASE,
)
"""How gRPC and proxies say that the way to the server, or the server itself, is gone. The last is gRPC's word
for a call that came just as a server began to stop."""


def call_error(failure: grpc.aio.AioRpcError, server: str) -> ClientError:
    """The error for a call that ended with a status.

    Where the connection was lost on the way, gRPC and proxies make up a status that no server has chosen:
    UNAVAILABLE, UNKNOWN, INTERNAL or CANCELLED. The same request may well succeed then.
    """
    status, details = failure.code(), failure.details() or ""
    if REQUEST_HEADER not in dict(failure.trailing_metadata() or ()) and (
        status in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
        or (status in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL) and LOST.search(details))
    ):
        return LostError(f"{server}: {details or status.name}")
    return server_error(status.name, details, server)


class Answer:
    """One response of a stream.

    Attributes:
        request_id: of the request that it answers.
        error: text of an error, empty without one.
        result: outputs of the model, by ``as_numpy``; meaningless with an error.
        final: whether it is the last one of its request.
    """

    def __init__(self, response: Any) -> None:
        inner = response.infer_response
        self.request_id: str = inner.id
        self.error: str = response.error_message
        self.result = InferResult(inner)
        self.final = FINAL in inner.parameters and bool(inner.parameters[FINAL].bool_param)
