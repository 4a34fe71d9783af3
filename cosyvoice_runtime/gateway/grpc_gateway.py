"""gRPC's gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

import grpc
import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from cosyvoice_runtime.errors import STATUSES, ClientGoneError, with_status
from cosyvoice_runtime.gateway.departures import Departures, new_call_id
from cosyvoice_runtime.gateway.load_shedder import LoadShedder
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.pending_bytes import PendingBytes
from cosyvoice_runtime.gateway.policy import (
    INFER,
    MAX_NAME_LENGTH,
    MODEL_CONFIG,
    OPEN_CALLS,
    STREAM_INFER,
    Policy,
    RefusedError,
    closed,
)
from cosyvoice_runtime.gateway.tensor_check import check_grpc
from cosyvoice_runtime.gateway.utterance_request import UtteranceRequest
from cosyvoice_runtime.gateway.wording import reworded, reworded_in_stream
from cosyvoice_runtime.headers import CALL_HEADER, CLIENT_HEADER, LEFT_HEADER

logger = logging.getLogger(__name__)

Metadata = list[tuple[str, str]]
NAMES_A_MODEL = {
    "ModelReady": service_pb2.ModelReadyRequest,
    "ModelMetadata": service_pb2.ModelMetadataRequest,
    "ModelConfig": service_pb2.ModelConfigRequest,
}
"""Requests about one model."""
UNLIMITED = ("grpc.max_receive_message_length", -1)
SETTLE_S = 2.0
"""Longest wait at the end for calls that clients have left."""
FINAL = "triton_final_response"
"""Parameter of a response, by which clients know a request's last one."""
MAX_CALLS = 4096
"""In progress at once; more are refused."""


class GrpcGateway:
    """Serves until closed. Made and used in one event loop."""

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._channel = grpc.aio.insecure_channel(
            f"unix:{options.server}",
            [UNLIMITED, ("grpc.max_send_message_length", -1), ("grpc.max_reconnect_backoff_ms", 500)],
        )
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", options.max_request_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=MAX_CALLS,
        )
        self._departures = Departures(self._stop)
        self._server.add_generic_rpc_handlers([_Calls(self._channel, options, self._departures)])

    async def start(self) -> None:
        """
        Raises:
            RuntimeError: the address can't be used.
        """
        self._server.add_insecure_port(self._options.address)
        await self._server.start()

    async def close(self) -> None:
        await self._server.stop(grace=0.2)
        await self._departures.over(SETTLE_S)
        await self._channel.close()

    async def _stop(self, model: str, call_id: str) -> None:
        call = self._channel.stream_stream(STREAM_INFER)(metadata=[(LEFT_HEADER, call_id)])
        await call.write(stop_request(model))
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            continue


class _Calls(grpc.GenericRpcHandler):
    """Finds what answers a call; messages are bytes, of which only some are looked into."""

    def __init__(self, channel: grpc.aio.Channel, options: GatewayOptions, departures: Departures) -> None:
        self._channel = channel
        self._policy = Policy(options.open_models)
        self._pending = PendingBytes(options.max_pending_bytes)
        self._shedder = LoadShedder.of(options)
        self._departures = departures
        self._stages = frozenset(options.stages)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method
        if method == STREAM_INFER:
            return grpc.stream_stream_rpc_method_handler(self._stream)
        if method in OPEN_CALLS:
            return grpc.unary_unary_rpc_method_handler(self._unary(method))
        return grpc.stream_stream_rpc_method_handler(_refusal(method))

    def _unary(self, method: str) -> Callable[..., Any]:
        async def answer(message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes | None:
            try:
                return await self._ask(method, message, _named(context))
            except RefusedError as refusal:
                await context.abort(grpc.StatusCode[refusal.status], str(refusal))
                return None

        return answer

    async def _ask(self, method: str, message: bytes, named: Metadata) -> bytes:
        """One answer for one request. A client that leaves takes its request along."""
        admitted, call_id = self._admit(method, message, named), new_call_id()
        call = self._channel.unary_unary(method)(message, metadata=[*named, (CALL_HEADER, call_id)])
        answering = asyncio.create_task(self._answer(call, admitted.size))
        try:
            answer = await asyncio.shield(answering)
        except grpc.aio.AioRpcError as error:
            raise RefusedError(*_told(error)) from None
        finally:
            if not answering.done():
                self._departures.see_off(call_id, admitted.models, _end(answering))
        return _without_paths(answer) if method == MODEL_CONFIG else answer

    async def _answer(self, call: Any, size: int) -> bytes:
        try:
            return await call
        finally:
            self._pending.give_back(size)

    def _admit(self, method: str, message: bytes, named: Metadata) -> Admitted:
        name = method.rpartition("/")[2]
        if method == INFER:
            return self._admit_inference(message, named)
        if name in NAMES_A_MODEL:
            request = _parsed(NAMES_A_MODEL[name], message)
            self._policy.check_model(request.name, request.version)
        return Admitted(0, frozenset())

    def _admit_inference(self, message: bytes, named: Metadata) -> Admitted:
        request = _parsed(service_pb2.ModelInferRequest, message)
        check_grpc(request, self._policy)
        if self._shedder is not None:
            self._shedder.check(UtteranceRequest.of_grpc(request, dict(named).get(CLIENT_HEADER)))
        return Admitted(self._pending.take(len(message)), frozenset([request.model_name]))

    async def _stream(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> None:
        named, call_id = _named(context), new_call_id()
        client = _Client(requests, context, partial(self._admit_inference, named=named))
        try:
            first = await client.next()
        except ClientGoneError:
            return
        if first is None:
            return  # nothing got through, of which the server need not know
        upstream = self._channel.stream_stream(STREAM_INFER)(metadata=[*named, (CALL_HEADER, call_id)])
        stream = _Stream(upstream, client, self._pending)
        try:
            await stream.run(first)
        except ClientGoneError:
            return
        except grpc.aio.AioRpcError as error:
            status, text = _told(error)
            await context.abort(grpc.StatusCode[status], text)
        finally:
            if not upstream.done():
                if stream.models.isdisjoint(self._stages):
                    self._departures.see_off(call_id, stream.models, stream.drain())
                else:
                    self._departures.cancel(upstream, stream.drain())


class Admitted(NamedTuple):
    """A request that gets through.

    Attributes:
        size: bytes that it counts for.
        models: that it asks; none if it is no inference.
    """

    size: int
    models: frozenset[str]


class _Client:
    """A client's side of a stream. What is wrong with one request is told in its place.

    Args:
        admit: looks at a request; raises RefusedError.
    """

    def __init__(
        self, requests: AsyncIterator[bytes], context: Any, admit: Callable[[bytes], Admitted]
    ) -> None:
        self._requests = aiter(requests)
        self._context = context
        self._admit = admit
        self._telling = asyncio.Lock()

    async def next(self) -> tuple[bytes, Admitted] | None:
        """The next request that gets through; None when the client has said all.

        Raises:
            ClientGoneError: it has left.
        """
        async for message in self._requests:
            try:
                return message, self._admit(message)
            except RefusedError as refusal:
                await self.tell(_error(refusal, message))
        return None

    async def tell(self, response: bytes) -> None:
        """
        Raises:
            ClientGoneError: it has left.
        """
        async with self._telling:
            try:
                await self._context.write(response)
            except grpc.aio.InternalError as error:
                raise ClientGoneError from error


class _Stream:
    """A client's stream and the server's behind it.

    Attributes:
        models: that were asked.
    """

    def __init__(self, upstream: Any, client: _Client, pending: PendingBytes) -> None:
        self._upstream = upstream
        self._client = client
        self._pending = pending
        self._taken = 0
        self._reading: asyncio.Future[Any] | None = None
        self._sending: asyncio.Future[None] | None = None
        self.models: frozenset[str] = frozenset()

    async def run(self, first: tuple[bytes, Admitted]) -> None:
        """Pass on what comes from either side, from the first request until the server has ended the stream.

        Raises:
            ClientGoneError: the client has left.
        """
        passing = asyncio.create_task(self._pass_requests(first))
        try:
            while (response := await self._next()) is not grpc.aio.EOF:
                self._give_back()
                await self._client.tell(_told_in_stream(response))
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)
            if self._upstream.done():
                self._give_back()

    async def drain(self) -> None:
        """Read the server's stream to its end, for nobody."""
        try:
            if self._sending is not None:
                await asyncio.wait([self._sending])
            await self._upstream.done_writing()
            while await (self._reading or self._upstream.read()) is not grpc.aio.EOF:
                self._reading = None
        finally:
            self._give_back()

    async def _pass_requests(self, first: tuple[bytes, Admitted]) -> None:
        request: tuple[bytes, Admitted] | None = first
        while request is not None:
            message, admitted = request
            self._taken += admitted.size
            self.models |= admitted.models
            await self._send(self._upstream.write(message))
            request = await self._client.next()
        await self._send(self._upstream.done_writing())

    async def _next(self) -> Any:
        """The server's next response. gRPC cancels a call whose reader is cancelled, so a task reads."""
        self._reading = asyncio.ensure_future(self._upstream.read())
        response = await asyncio.shield(self._reading)
        self._reading = None
        return response

    async def _send(self, sending: Coroutine[Any, Any, None]) -> None:
        """The same for what goes to the server."""
        self._sending = asyncio.ensure_future(sending)
        await asyncio.shield(self._sending)

    def _give_back(self) -> None:
        """The server has begun to answer, so it has copied what was sent."""
        self._pending.give_back(self._taken)
        self._taken = 0


def stop_request(model: str) -> bytes:
    """A request without a text, of which the header says what it is for."""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="target_text", datatype="BYTES", shape=[1, 1])
    request.raw_input_contents.append(serialize_byte_tensor(np.array([[b""]], np.object_)).item())
    return bytes(request.SerializeToString())


async def _end(answering: asyncio.Task[bytes]) -> None:
    await asyncio.wait([answering])


def _refusal(method: str) -> Callable[..., Any]:
    async def refuse(_: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(closed(method)))

    return refuse


def _parsed(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except Exception:
        raise RefusedError("INVALID_ARGUMENT", f"the message is no {kind.DESCRIPTOR.name}") from None


def _told(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    return reworded(error.code().name, error.details() or "")


def _named(context: Any) -> list[tuple[str, str]]:
    """Who asks, if that is said: all that reaches the server of a client's metadata."""
    name = dict(context.invocation_metadata() or ()).get(CLIENT_HEADER)
    return [] if name is None else [(CLIENT_HEADER, str(name)[:MAX_NAME_LENGTH])]


def _told_in_stream(response: bytes) -> bytes:
    """Almost all responses are audio and are passed on as they are."""
    parsed = service_pb2.ModelStreamInferResponse.FromString(response)
    if not parsed.error_message:
        return response
    parsed.error_message = reworded_in_stream(parsed.error_message)
    return bytes(parsed.SerializeToString())


def _error(refusal: RefusedError, message: bytes) -> bytes:
    """The response of a stream to a request that was refused: its last one, as of the models' own errors."""
    status = refusal.status if refusal.status in STATUSES else "INTERNAL"
    response = service_pb2.ModelStreamInferResponse(error_message=with_status(status, str(refusal)))
    try:
        request = service_pb2.ModelInferRequest.FromString(message)
    except Exception:
        logger.debug("a request that can't be parsed", exc_info=True)
    else:
        response.infer_response.model_name, response.infer_response.id = request.model_name, request.id
        response.infer_response.parameters[FINAL].bool_param = True
    return bytes(response.SerializeToString())


def _without_paths(answer: bytes) -> bytes:
    """A model's configuration without its ``parameters``: directories of the machine, sizes, addresses."""
    response = service_pb2.ModelConfigResponse.FromString(answer)
    response.config.ClearField("parameters")
    return bytes(response.SerializeToString())
