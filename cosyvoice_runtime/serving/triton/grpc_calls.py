"""Requests from one model to another through the server's own gRPC port, over one channel for all calls.

The python backend's own way (BLS) is not used: that of Triton 2.51 loses answers and kills processes when
threads use it, and none of its calls can be cancelled (docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from cosyvoice_runtime.direct import DIRECT
from cosyvoice_runtime.errors import StageError, split_status
from cosyvoice_runtime.serving.triton.schema import ModelSchema, Tensors
from cosyvoice_runtime.serving.triton.stage_calls import READY_TIMEOUT_S, Beside

CHANNEL_OPTIONS = [
    DIRECT,
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]


class GrpcCalls:
    """The ``StageWay`` of models that have a process of their own.

    Args:
        url: ``host:port`` of the server.
    """

    process: str | None = None

    def __init__(self, url: str) -> None:
        self._server = triton.InferenceServerClient(url, channel_args=CHANNEL_OPTIONS)

    async def infer(self, schema: ModelSchema, inputs: Mapping[str, Any], timeout_s: float) -> Tensors:
        try:
            result = await self._server.infer(
                schema.name, _inputs(schema.encode(**inputs)), client_timeout=timeout_s
            )
        except InferenceServerException as error:
            status = (error.status() or "").removeprefix("StatusCode.")
            if status == "DEADLINE_EXCEEDED":
                raise TimeoutError from None
            raise StageError(error.message(), status) from None
        return _outputs(result, schema.output_names)

    def stream(
        self,
        schema: ModelSchema,
        request_id: str,
        inputs: Mapping[str, Any],
        further: AsyncIterator[Mapping[str, Any]] | None,
        beside: Beside | None = None,  # noqa: ARG002 - never given: each has a process of its own
    ) -> GrpcResponses:
        return GrpcResponses(
            self._server.stream_infer(_requests(schema, request_id, inputs, further)), schema.output_names
        )

    async def ready(self, model: str) -> bool:
        """It says yes of one whose process has died, too."""
        try:
            return bool(await self._server.is_model_ready(model, client_timeout=READY_TIMEOUT_S))
        except InferenceServerException:
            return False

    async def close(self) -> None:
        await self._server.close()


class GrpcResponses:
    """A stream of tritonclient.

    Args:
        names: of the outputs.
    """

    def __init__(self, responses: Any, names: Sequence[str]) -> None:
        self._responses = responses
        self._names = names

    async def __anext__(self) -> Tensors:
        try:
            result, error = await anext(self._responses)
        except grpc.aio.AioRpcError as failure:
            raise StageError(failure.details() or "no details", failure.code().name) from None
        if error is not None:
            status, message = split_status(error.message())
            raise StageError(message, status)
        return _outputs(result, self._names)

    def cancel(self) -> None:
        self._responses.cancel()


async def _requests(
    schema: ModelSchema,
    request_id: str,
    first: Mapping[str, Any],
    further: AsyncIterator[Mapping[str, Any]] | None,
) -> AsyncIterator[dict[str, Any]]:
    name = {"model_name": schema.name, "request_id": request_id}
    yield {**name, "inputs": _inputs(schema.encode(**first))}
    if further is not None:
        async for inputs in further:
            yield {**name, "inputs": _inputs(schema.encode(**inputs))}


def _inputs(tensors: Tensors) -> list[triton.InferInput]:
    inputs = []
    for name, array in tensors.items():
        tensor = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return inputs


def _outputs(result: Any, names: Sequence[str]) -> Tensors:
    arrays = {name: result.as_numpy(name) for name in names}
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}
