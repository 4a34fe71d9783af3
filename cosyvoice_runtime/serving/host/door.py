"""A model of the server whose requests another model's process answers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from cosyvoice_runtime.errors import ClientGoneError, StageError, split_status
from cosyvoice_runtime.event_loop import EventLoopThread
from cosyvoice_runtime.metrics.request_count import RequestCount
from cosyvoice_runtime.serving.host.hosted_request import read_array
from cosyvoice_runtime.serving.triton.grpc_calls import CHANNEL_OPTIONS
from cosyvoice_runtime.serving.triton.request import Reply

logger = logging.getLogger(__name__)

LOOK_S = 0.5
"""Time between two looks whether a client is still there."""


class Door:
    """Passes requests of a model on. Those with one id reach the model in the order they came.

    Args:
        model: its name.
        url: of the :class:`~cosyvoice_runtime.serving.host.model_host.ModelHost`.
        streamed: whether the model is decoupled; others answer once.
    """

    def __init__(self, model: str, url: str, streamed: bool = True) -> None:
        self._model = model
        self._streamed = streamed
        self._count = RequestCount(model)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._users: Counter[str] = Counter()
        self._loop = EventLoopThread("door")
        self._channel = self._loop.run(_connect(url))
        self._calls = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        logger.info("%s is computed in another model's process, at %s", model, url)

    def execute(self, requests: list[Any]) -> list[None] | None:
        for request in requests:
            self._count.enter()
            reply = Reply(request, self._model, self._streamed)
            try:
                message = self._message(request)
            except Exception as error:
                self._end(reply, error)
            else:
                self._loop.start(self._answer(message, reply))
        return None if self._streamed else [None] * len(requests)  # as Triton wants it of each kind

    def finalize(self) -> None:
        self._loop.run(self._channel.close())
        self._loop.close()

    async def _answer(self, message: Any, reply: Reply) -> None:
        try:
            await self._pass_on(message, reply)
        except Exception as error:
            self._end(reply, error)
        else:
            self._end(reply)

    def _end(self, reply: Reply, error: Exception | None = None) -> None:
        try:
            reply.finish(error)
        finally:
            self._count.leave()

    async def _pass_on(self, message: Any, reply: Reply) -> None:
        call = self._calls.ModelStreamInfer()
        send = reply.send if self._streamed else reply.send_only
        try:
            async with self._turn(message.id):
                await call.write(message)
                await call.done_writing()
                await call.initial_metadata()
            while (response := await _next(call, reply)) is not grpc.aio.EOF:
                if response.error_message:
                    status, text = split_status(response.error_message)
                    raise StageError(text, status)
                send(**_outputs(response.infer_response))
        except asyncio.InvalidStateError as error:  # of a call that ended before it was written to
            raise self._away() from error
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise self._away() from error
            raise StageError(f"{self._model}: {error.details()}", error.code().name) from error
        finally:
            call.cancel()

    def _away(self) -> StageError:
        return StageError(f"{self._model}: its process is away; try again later", "UNAVAILABLE")

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """Requests without a name need no order."""
        if not name:
            yield
            return
        self._users[name] += 1
        try:
            async with self._turns[name]:
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._turns[name]

    def _message(self, request: Any) -> Any:
        message = service_pb2.ModelInferRequest(model_name=self._model, id=request.request_id())
        for tensor in request.inputs():
            array = tensor.as_numpy()
            message.inputs.add(
                name=tensor.name(), datatype=np_to_triton_dtype(array.dtype), shape=array.shape
            )
            text = array.dtype == np.object_
            message.raw_input_contents.append(
                serialize_byte_tensor(array).item() if text else array.tobytes()
            )
        return message


async def _next(call: Any, reply: Reply) -> Any:
    """The next response, or EOF.

    Raises:
        ClientGoneError: the client has gone meanwhile, which nobody tells.
    """
    reading = asyncio.ensure_future(call.read())
    try:
        while not (await asyncio.wait({reading}, timeout=LOOK_S))[0]:
            if reply.cancelled:
                raise ClientGoneError
        return reading.result()
    finally:
        reading.cancel()


async def _connect(url: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(url, CHANNEL_OPTIONS)


def _outputs(response: Any) -> dict[str, Any]:
    pairs = zip(response.outputs, response.raw_output_contents, strict=True)
    return {spec.name: read_array(spec, content) for spec, content in pairs}
