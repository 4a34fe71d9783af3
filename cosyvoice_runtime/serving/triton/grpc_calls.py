"""Requests from one model to another: through the server's own gRPC port, or to the process that computes.

One channel leads to each address, for all calls.

The python backend's own way (BLS) is not used: that of Triton 2.51 loses answers and kills processes when
threads use it, and none of its calls can be cancelled (docs/decisions.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from cosyvoice_runtime.errors import StageError, StageLostError, StageSilentError, split_status
from cosyvoice_runtime.serving.triton.schema import ModelSchema, Tensors
from cosyvoice_runtime.serving.triton.stage_watch import StageLife, StageWatch, answer_of, find_stub

READY_TIMEOUT_S = 5.0
LOADED_INTERVAL_S = 0.1
"""Time between two looks whether a model is loaded, which takes seconds."""
CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]

HOME_OPTIONS = [
    *CHANNEL_OPTIONS,
    # A process that is back is reached at once: a call waits for the connection and not for the next try.
    ("grpc.service_config", '{"methodConfig":[{"name":[{}],"waitForReady":true}]}'),
]


@dataclass(frozen=True)
class Home:
    """Where a model is called past the server.

    Attributes:
        url: of the process that computes.
        model: whose process that is.
    """

    url: str
    model: str


class GrpcCalls:
    """Calls to the server at ``url`` (``host:port``), in a batch of one; made and used in one event loop.

    Args:
        timeout_s: longest wait for an answer, and between two answers of a stream.
        find: process id of a model, if it runs on this machine.
        homes: by model, of those that are called past the server.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        find: Callable[[str], int | None] = find_stub,
        homes: Mapping[str, Home] | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._homes = homes or {}
        self._server = triton.InferenceServerClient(url, channel_args=CHANNEL_OPTIONS)
        self._clients = {
            home.url: triton.InferenceServerClient(home.url, channel_args=HOME_OPTIONS)
            for home in set(self._homes.values())
        }
        self.stages = StageWatch(self._ready, lambda model: find(self._process(model)))

    async def call(
        self, schema: ModelSchema, inputs: Mapping[str, Any], timeout_s: float | None = None
    ) -> Tensors:
        """Run a model that answers once. Cancelled by its caller, the call still comes to its end.

        Raises:
            StageLostError: the model's process ended, or has not been loaded again yet.
            StageError: the model refused or failed.
            StageSilentError: it did not answer in time.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        life = await self.stages.life(schema.name)
        # Never cancelled: Triton 2.51 may abort when a request is cancelled just as it ends.
        answer = answer_of(self._infer(schema, inputs, timeout_s))
        try:
            return await (asyncio.shield(answer) if life is None else life.outlast(answer))
        except StageLostError:
            raise
        except StageError as error:
            raise await self.stages.explain(schema.name, error) from None

    async def stream(
        self,
        schema: ModelSchema,
        inputs: Mapping[str, Any],
        request_id: str = "",
        timeout_s: float | None = None,
        further: AsyncIterator[Mapping[str, Any]] | None = None,
    ) -> AsyncGenerator[Tensors, None]:
        """Run a decoupled model; each response as it comes. Closing it early cancels the request.

        Args:
            further: inputs of requests that follow in the same stream, under the same id. It must not raise;
                the stream ends after it has.

        Raises:
            StageLostError: the model's process ended, or has not been loaded again yet.
            StageError: the model refused or failed.
            StageSilentError: nothing came in time.
        """
        life = await self.stages.life(schema.name)
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        responses = self._client(schema.name).stream_infer(_requests(schema, request_id, inputs, further))
        ended = False
        try:
            while (response := await self._next(schema, responses, life, timeout_s)) is not None:
                yield _outputs(response, schema.output_names)
            ended = True
        except StageLostError:
            raise
        except StageError as error:
            ended = True
            raise await self.stages.explain(schema.name, error) from None
        finally:
            if not ended:
                responses.cancel()

    async def _infer(self, schema: ModelSchema, inputs: Mapping[str, Any], timeout_s: float) -> Tensors:
        try:
            result = await self._client(schema.name).infer(
                schema.name, _inputs(schema.encode(**inputs)), client_timeout=timeout_s
            )
        except InferenceServerException as error:
            status = (error.status() or "").removeprefix("StatusCode.")
            if status == "DEADLINE_EXCEEDED":
                raise _silent(schema, timeout_s) from None
            raise StageError(error.message(), status) from None
        return _outputs(result, schema.output_names)

    async def _next(
        self, schema: ModelSchema, responses: Any, life: StageLife | None, timeout_s: float
    ) -> Any:
        """The next response of a stream; None at its end."""
        try:
            result, error = await _within(anext(responses), life, timeout_s)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            raise _silent(schema, timeout_s) from None
        except grpc.aio.AioRpcError as failure:
            raise StageError(failure.details() or "no details", failure.code().name) from None
        if error is not None:
            status, message = split_status(error.message())
            raise StageError(message, status)
        return result

    async def _ready(self, model: str) -> bool:
        """Whether the server has the model loaded; it says yes of one whose process has died, too."""
        try:
            process = self._process(model)
            return bool(await self._server.is_model_ready(process, client_timeout=READY_TIMEOUT_S))
        except InferenceServerException:
            return False

    def _client(self, model: str) -> triton.InferenceServerClient:
        home = self._homes.get(model)
        return self._server if home is None else self._clients[home.url]

    def _process(self, model: str) -> str:
        """The model in whose process it computes."""
        home = self._homes.get(model)
        return model if home is None else home.model

    async def loaded(self, models: Sequence[str]) -> None:
        """Wait until the server has all of these."""
        for model in models:
            while not await self._ready(model):
                await asyncio.sleep(LOADED_INTERVAL_S)

    async def close(self) -> None:
        await self.stages.close()
        for client in (self._server, *self._clients.values()):
            await client.close()


def _silent(schema: ModelSchema, timeout_s: float) -> StageSilentError:
    return StageSilentError(f"{schema.name} sent nothing for {timeout_s:g} s; try again later")


async def _within(response: Coroutine[Any, Any, Any], life: StageLife | None, timeout_s: float) -> Any:
    if life is None:
        return await asyncio.wait_for(response, timeout_s)
    answer = answer_of(response)
    try:
        return await life.outlast(answer, timeout_s)
    finally:
        answer.cancel()


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
