"""The gRPC gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from cosyvoice_runtime.errors import ClientGoneError
from cosyvoice_runtime.gateway.audit import CallAudit
from cosyvoice_runtime.gateway.departures import Departures
from cosyvoice_runtime.gateway.grpc_stream import (
    SMALL_BYTES,
    Admitted,
    ClientCall,
    ServerStream,
    exchange,
    next_request,
    note_parents,
    parsed,
)
from cosyvoice_runtime.gateway.health_watch import HealthWatch
from cosyvoice_runtime.gateway.limits import CallLimit, LoadShedder, PendingBytes, most_connections
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.policy import (
    HEALTH_CALLS,
    HEALTH_CHECK,
    HEALTH_WATCH,
    INFER,
    MAX_NAME_LENGTH,
    MODEL_CONFIG,
    MODEL_READY,
    OPEN_CALLS,
    STREAM_INFER,
    Policy,
    RefusedError,
    closed,
)
from cosyvoice_runtime.gateway.request_check import UtteranceRequest, check_grpc
from cosyvoice_runtime.gateway.wording import reworded
from cosyvoice_runtime.process.audit_log import AuditLog
from cosyvoice_runtime.process.headers import (
    CALL_HEADER,
    CLIENT_HEADER,
    LEFT_HEADER,
    REQUEST_HEADER,
    new_call_id,
    request_name,
)
from cosyvoice_runtime.process.listening import DIRECT, own_addresses, split_port, with_port

logger = logging.getLogger(__name__)

Metadata = list[tuple[str, str]]
NAMES_A_MODEL = {
    "ModelReady": service_pb2.ModelReadyRequest,
    "ModelMetadata": service_pb2.ModelMetadataRequest,
    "ModelConfig": service_pb2.ModelConfigRequest,
}
"""These requests name one model."""
UNLIMITED = ("grpc.max_receive_message_length", -1)
HEALTH_TIMEOUT_S = 10.0
"""The longest wait for the server's answer to a health check."""
SETTLE_S = 2.0
"""The longest wait, when the gateway closes, for calls whose clients have left."""
MAX_CALLS = 4096
"""The most concurrent calls, health checks apart; further calls are refused."""
MAX_CALLS_OF_A_CONNECTION = 1024
"""Clients wait by themselves above this number. A proxy may send all of its clients over one connection."""


class GrpcGateway:
    """Serves gRPC in one event loop until it is closed."""

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._channel = grpc.aio.insecure_channel(
            f"unix:{options.server}",
            [DIRECT, UNLIMITED, ("grpc.max_send_message_length", -1), ("grpc.max_reconnect_backoff_ms", 500)],
        )
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", options.max_request_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", MAX_CALLS_OF_A_CONNECTION),
                ("grpc.so_reuseport", 0),
                ("grpc.max_allowed_incoming_connections", most_connections(files_each=1)),
                ("grpc.server_handshake_timeout_ms", int(options.arrival_timeout_s * 1000)),
                *_keepalive(options.stalled_client_timeout_s),
            ],
        )
        self._departures = Departures(self._stop)
        self._server.add_generic_rpc_handlers([_Calls(self._channel, options, self._departures)])

    async def start(self) -> None:
        """Listen at the address, and connect to the server; a RuntimeError tells of an unusable address."""
        note_parents(asyncio.get_running_loop())
        host, port = split_port(self._options.address)
        for address in own_addresses(host, "server.host"):
            self._server.add_insecure_port(with_port(address, port))
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
    """Finds the handler of a call; messages stay bytes, and only some are parsed."""

    def __init__(self, channel: grpc.aio.Channel, options: GatewayOptions, departures: Departures) -> None:
        self._channel = channel
        self._policy = Policy(options.open_models)
        self._pending = PendingBytes(options.max_pending_bytes)
        self._stalled_timeout_s = options.stalled_client_timeout_s
        self._arrival_timeout_s = options.arrival_timeout_s
        self._limit = CallLimit(MAX_CALLS)
        self._shedder = LoadShedder.of(options)
        self._departures = departures
        self._stages = frozenset(options.stages)
        self._whole = options.whole_models
        self._health = HealthWatch(partial(channel.unary_unary(HEALTH_CHECK), b"", timeout=HEALTH_TIMEOUT_S))
        self._audit = AuditLog(options.audit_file, "server.audit_file")

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method

        async def answer(_: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
            try:
                client, named = ClientCall(context, self._stalled_timeout_s), _named(context)
                name, caller = dict(named)[REQUEST_HEADER], dict(named).get(CLIENT_HEADER)
                audit = CallAudit(self._audit, method, context.peer(), caller, name)
                context.set_trailing_metadata([(REQUEST_HEADER, name)])
                with nullcontext() if method in HEALTH_CALLS else self._limit.counted(), audit.call():
                    await self._answer(method, client, named, audit)
            except RefusedError as refusal:
                await context.abort(grpc.StatusCode[refusal.status], str(refusal))
            except ClientGoneError:
                logger.debug("the client of a call to %s has left", method)

        # Unary calls, too, are read as streams: gRPC itself would wait without a limit for their message and
        # reader.
        return grpc.stream_stream_rpc_method_handler(answer)

    async def _answer(self, method: str, client: ClientCall, named: Metadata, audit: CallAudit) -> None:
        if method not in OPEN_CALLS:
            raise closed(method)
        if method == STREAM_INFER:
            await self._stream(client, named, audit)
        elif (message := await client.read(self._arrival_timeout_s)) is None:
            return
        elif method == HEALTH_WATCH:
            async with aclosing(self._health.states()) as states:
                async for state in states:
                    await client.write(state)
        else:
            await client.write(await self._ask(method, message, named, audit))

    async def _ask(self, method: str, message: bytes, named: Metadata, audit: CallAudit) -> bytes:
        """Forward one request and return its response; the request ends when the client leaves."""
        if method == MODEL_READY and self._is_unknown(message):
            return bytes(service_pb2.ModelReadyResponse(ready=False).SerializeToString())
        admitted = self._admit(method, message, named, audit)
        for model in admitted.models & self._whole.keys():
            asked = self._whole[model]
            # If a message has two names, the last one counts.
            message += service_pb2.ModelInferRequest(model_name=asked).SerializeToString()
            instead = Admitted(admitted.size, frozenset([asked]))
            answer = await self._answer_of(method, message, named, instead)
            audit.spoke(answer)
            return answer + bytes(service_pb2.ModelInferResponse(model_name=model).SerializeToString())
        answer = await self._answer_of(method, message, named, admitted)
        audit.spoke(answer)
        return _without_paths(answer) if method == MODEL_CONFIG else answer

    async def _answer_of(self, method: str, message: bytes, named: Metadata, admitted: Admitted) -> bytes:
        call_id = new_call_id()
        call = self._channel.unary_unary(method)(message, metadata=[*named, (CALL_HEADER, call_id)])
        answering = asyncio.create_task(self._counted(call, admitted.size))
        try:
            return await asyncio.shield(answering)
        except grpc.aio.AioRpcError as error:
            raise RefusedError(*_told(error)) from None
        finally:
            if not answering.done():
                self._departures.see_off(call_id, admitted.models, _end(answering))

    def _is_unknown(self, message: bytes) -> bool:
        """Whether the request is about a model that clients may not use; it is reported as not ready."""
        return len(message) <= SMALL_BYTES and not self._policy.is_open(
            parsed(service_pb2.ModelReadyRequest, message).name
        )

    async def _counted(self, call: Any, size: int) -> bytes:
        try:
            return await call
        finally:
            self._pending.give_back(size)

    def _admit(self, method: str, message: bytes, named: Metadata, audit: CallAudit) -> Admitted:
        name = method.rpartition("/")[2]
        if method == INFER:
            return self._admit_inference(message, named, audit)
        if len(message) > SMALL_BYTES:
            text = f"message: larger than {SMALL_BYTES} bytes, the limit of all but inference"
            raise RefusedError("RESOURCE_EXHAUSTED", text)
        if name in NAMES_A_MODEL:
            request = parsed(NAMES_A_MODEL[name], message)
            self._policy.check_model(request.name, request.version)
        return Admitted(0, frozenset())

    def _admit_inference(self, message: bytes, named: Metadata, audit: CallAudit) -> Admitted:
        request_id = ""
        try:
            request = parsed(service_pb2.ModelInferRequest, message)
            check_grpc(request, self._policy)
            request_id = request.id
            asked = UtteranceRequest.of_grpc(request, dict(named).get(CLIENT_HEADER))
            if self._shedder is not None:
                self._shedder.check(asked)
            admitted = Admitted(self._pending.take(len(message)), frozenset([request.model_name]))
        except RefusedError as refusal:
            audit.refused(request_id, refusal)
            raise
        audit.asked(asked)
        return admitted

    async def _stream(self, client: ClientCall, named: Metadata, audit: CallAudit) -> None:
        call_id = new_call_id()
        admit = partial(self._admit_inference, named=named, audit=audit)
        first = await next_request(client, admit, self._arrival_timeout_s)
        if first is None:
            return  # The server need not know of a call without an admitted request.
        call = self._channel.stream_stream(STREAM_INFER)(metadata=[*named, (CALL_HEADER, call_id)])
        server = ServerStream(call, self._pending)
        try:
            await exchange(client, admit, server, first, audit)
        except grpc.aio.AioRpcError as error:
            raise RefusedError(*_told(error)) from None
        finally:
            if not server.settle():
                if server.models.isdisjoint(self._stages):
                    self._departures.see_off(call_id, server.models, server.drain())
                else:
                    self._departures.cancel(call, server.drain())


def stop_request(model: str) -> bytes:
    """A request without a text, whose header tells the model which call to stop."""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="target_text", datatype="BYTES", shape=[1, 1])
    request.raw_input_contents.append(serialize_byte_tensor(np.array([[b""]], np.object_)).item())
    return bytes(request.SerializeToString())


def _keepalive(timeout_s: float) -> list[tuple[str, int]]:
    """The keepalive options: a client whose machine is gone is noticed within twice this time."""
    milliseconds = int(timeout_s * 1000)
    return [
        ("grpc.keepalive_time_ms", milliseconds),
        ("grpc.keepalive_timeout_ms", milliseconds),
        ("grpc.http2.ping_timeout_ms", milliseconds),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


async def _end(answering: asyncio.Task[bytes]) -> None:
    await asyncio.wait([answering])


def _told(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    return reworded(error.code().name, error.details() or "")


def _named(context: Any) -> list[tuple[str, str]]:
    """The metadata that the server gets: the request's name and, if known, the client's."""
    said = dict(context.invocation_metadata() or ())
    client, request = said.get(CLIENT_HEADER), said.get(REQUEST_HEADER)
    named = [(REQUEST_HEADER, request_name(None if request is None else str(request)))]
    return named if client is None else [(CLIENT_HEADER, str(client)[:MAX_NAME_LENGTH]), *named]


def _without_paths(answer: bytes) -> bytes:
    """A model's configuration without ``parameters``, which hold paths, sizes and addresses of the
    machine."""
    response = service_pb2.ModelConfigResponse.FromString(answer)
    response.config.ClearField("parameters")
    return bytes(response.SerializeToString())
