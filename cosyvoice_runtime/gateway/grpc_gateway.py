"""gRPC's gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from cosyvoice_runtime.errors import STATUSES, with_status
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.pending_bytes import PendingBytes
from cosyvoice_runtime.gateway.policy import (
    CLIENT_HEADER,
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
from cosyvoice_runtime.gateway.wording import reworded, reworded_in_stream

logger = logging.getLogger(__name__)

Metadata = list[tuple[str, str]]
NAMES_A_MODEL = {
    "ModelReady": service_pb2.ModelReadyRequest,
    "ModelMetadata": service_pb2.ModelMetadataRequest,
    "ModelConfig": service_pb2.ModelConfigRequest,
}
"""Requests about one model."""
UNLIMITED = ("grpc.max_receive_message_length", -1)
PROCESSED_S = 0.1
"""Time in which tritonserver has handed a request to its model."""
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
        self._server.add_generic_rpc_handlers([_Calls(self._channel, options)])

    async def start(self) -> None:
        """
        Raises:
            RuntimeError: the address can't be used.
        """
        self._server.add_insecure_port(self._options.address)
        await self._server.start()

    async def close(self) -> None:
        await self._server.stop(grace=0.2)
        await self._channel.close()


class _Calls(grpc.GenericRpcHandler):
    """Finds what answers a call; messages are bytes, of which only some are looked into."""

    def __init__(self, channel: grpc.aio.Channel, options: GatewayOptions) -> None:
        self._channel = channel
        self._policy = Policy(options.open_models)
        self._pending = PendingBytes(options.max_pending_bytes)
        self._departures = Departures()

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

    async def _ask(self, method: str, message: bytes, metadata: Metadata) -> bytes:
        """One answer for one request. A client that leaves takes its request along."""
        taken = self._admit(method, message)
        call = self._channel.unary_unary(method)(message, metadata=metadata)
        try:
            answer = await asyncio.shield(call)
        except grpc.aio.AioRpcError as error:
            raise RefusedError(*_told(error)) from None
        finally:
            self._pending.give_back(taken)
            self._departures.leave(call)
        return _without_paths(answer) if method == MODEL_CONFIG else answer

    def _admit(self, method: str, message: bytes) -> int:
        name = method.rpartition("/")[2]
        if method == INFER:
            return self._admit_inference(message)
        if name in NAMES_A_MODEL:
            request = _parsed(NAMES_A_MODEL[name], message)
            self._policy.check_model(request.name, request.version)
        return 0

    def _admit_inference(self, message: bytes) -> int:
        check_grpc(_parsed(service_pb2.ModelInferRequest, message), self._policy)
        return self._pending.take(len(message))

    async def _stream(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> None:
        upstream = self._channel.stream_stream(STREAM_INFER)(metadata=_named(context))
        stream = _Stream(upstream, context, self._pending, self._departures)
        try:
            await stream.run(requests, self._admit_inference)
        except grpc.aio.AioRpcError as error:
            status, text = _told(error)
            await context.abort(grpc.StatusCode[status], text)


class _Stream:
    """A client's stream and the server's behind it. What is wrong with one request is told in its place."""

    def __init__(self, upstream: Any, context: Any, pending: PendingBytes, departures: Departures) -> None:
        self._upstream = upstream
        self._departures = departures
        self._context = context
        self._pending = pending
        self._taken = 0
        self._writing = asyncio.Lock()

    async def run(self, requests: AsyncIterator[bytes], admit: Callable[[bytes], int]) -> None:
        passing = asyncio.create_task(self._pass_requests(requests, admit))
        try:
            async for response in self._upstream:
                self._give_back()
                await self._write(_told_in_stream(response))
        finally:
            passing.cancel()
            self._departures.leave(self._upstream)
            self._give_back()
            await asyncio.gather(passing, return_exceptions=True)

    async def _pass_requests(self, requests: AsyncIterator[bytes], admit: Callable[[bytes], int]) -> None:
        async for message in requests:
            try:
                self._taken += admit(message)
            except RefusedError as refusal:
                await self._write(_error(refusal, message))
                continue
            await self._upstream.write(message)
        await self._upstream.done_writing()

    async def _write(self, response: bytes) -> None:
        async with self._writing:
            await self._context.write(response)

    def _give_back(self) -> None:
        """The server has begun to answer, so it has copied what was sent."""
        self._pending.give_back(self._taken)
        self._taken = 0


class Departures:
    """Cancels the calls of clients that have left.

    tritonserver before 25.06 frees a request twice that is cancelled before it is processed (CVE-2025-23322),
    which takes it a few milliseconds.
    """

    def __init__(self) -> None:
        self._leaving: set[asyncio.Task[None]] = set()

    def leave(self, call: Any) -> None:
        """Cancel a call soon, unless it has ended."""
        if not call.done():
            task = asyncio.create_task(_cancel_soon(call))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)


async def _cancel_soon(call: Any) -> None:
    await asyncio.sleep(PROCESSED_S)
    call.cancel()


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
    """The response of a stream to a request that was refused, with the request's id if it can be read."""
    status = refusal.status if refusal.status in STATUSES else "INTERNAL"
    response = service_pb2.ModelStreamInferResponse(error_message=with_status(status, str(refusal)))
    try:
        response.infer_response.id = service_pb2.ModelInferRequest.FromString(message).id
    except Exception:
        logger.debug("a request that can't be parsed", exc_info=True)
    return bytes(response.SerializeToString())


def _without_paths(answer: bytes) -> bytes:
    """A model's configuration without its ``parameters``: directories of the machine, sizes, addresses."""
    response = service_pb2.ModelConfigResponse.FromString(answer)
    response.config.ClearField("parameters")
    return bytes(response.SerializeToString())
