"""The gRPC gateway."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from cosyvoice_runtime.errors import ClientGoneError
from cosyvoice_runtime.gateway.audit import CallAudit
from cosyvoice_runtime.gateway.departures import Departures
from cosyvoice_runtime.gateway.grpc_channels import listening_options, open_channel
from cosyvoice_runtime.gateway.grpc_stream import (
    SMALL_BYTES,
    Admitted,
    ClientCall,
    Requests,
    ServerStream,
    exchange,
    first_request,
    next_request,
    note_parents,
    parsed,
    stop_request,
)
from cosyvoice_runtime.gateway.health_watch import NOT_SERVING, HealthWatch
from cosyvoice_runtime.gateway.limits import CallLimit, LoadShedder, PendingBytes
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
    SERVER_READY,
    STREAM_INFER,
    Policy,
    RefusedError,
    closed,
)
from cosyvoice_runtime.gateway.request_check import UtteranceRequest, check_grpc
from cosyvoice_runtime.gateway.tries import offered, tries_of
from cosyvoice_runtime.gateway.wording import RETRY_AFTER, STOPPING, reworded
from cosyvoice_runtime.process.audit_log import AuditLog
from cosyvoice_runtime.process.headers import (
    CALL_HEADER,
    CLIENT_HEADER,
    ELSEWHERE_HEADER,
    LEFT_HEADER,
    PUSHBACK_HEADER,
    REQUEST_HEADER,
    new_call_id,
    request_name,
    trace_headers,
)
from cosyvoice_runtime.process.listening import bound, own_addresses, split_port, with_port
from cosyvoice_runtime.process.spans import SERVER, open_spans

logger = logging.getLogger(__name__)

NAMES_A_MODEL = {
    "ModelReady": service_pb2.ModelReadyRequest,
    "ModelMetadata": service_pb2.ModelMetadataRequest,
    "ModelConfig": service_pb2.ModelConfigRequest,
}
"""These requests name one model."""
HEALTH_TIMEOUT_S = 2.0
"""The longest wait for the server's answer to a health check: balancers go elsewhere then."""
SETTLE_S = 2.0
"""The longest wait, when the gateway closes, for calls whose clients have left."""
CLOSING_S = 0.2
"""The time that calls have to end when the gateway closes."""
LONGEST_CALL_S = 86_400.0
"""The time that calls have to end while the server stops, whose own limit is shorter."""
MAX_CALLS = 4096
"""The most concurrent calls, health checks apart; further calls are refused."""


class GrpcGateway:
    """Serves gRPC in one event loop until it is closed."""

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._channel = open_channel(options)
        self._departures = Departures(self._stop)
        self._calls = _Calls(self._channel, options, self._departures)
        self._left: Any = None
        self._leaving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen at the address, and connect to the server; a RuntimeError tells of an unusable address."""
        note_parents(asyncio.get_running_loop())
        host, port = split_port(self._options.address)
        for address in own_addresses(host, "server.host"):
            bound(address, port).close()  # gRPC's own sockets share a port, also with a stranger's.
        self._server = await self._listen()
        self._channel.get_state(try_to_connect=True)  # Otherwise the first calls take the first server.

    async def leave(self) -> None:
        """Begin no utterance any more: every connection is told to go away, and its calls go on to their end.

        Whoever connects from then on is told that the server is stopping. gRPC sends GOAWAY only from a
        server that stops, which closes its port as well, so another one listens there before.
        """
        if self._leaving is not None:
            return
        self._calls.stopping = True
        self._left, self._server = self._server, await self._listen()
        self._leaving = asyncio.create_task(self._left.stop(grace=LONGEST_CALL_S))

    async def close(self) -> None:
        await self._server.stop(grace=CLOSING_S)
        if self._left is not None:
            await self._left.stop(grace=CLOSING_S)
        await self._departures.over(SETTLE_S)
        await self._channel.close()
        if self._calls.spans is not None:
            await asyncio.to_thread(self._calls.spans.close)

    async def _listen(self) -> Any:
        server = grpc.aio.server(options=listening_options(self._options))
        server.add_generic_rpc_handlers([self._calls])
        host, port = split_port(self._options.address)
        for address in own_addresses(host, "server.host"):
            server.add_insecure_port(with_port(address, port))
        await server.start()
        return server

    async def _stop(self, model: str, call_id: str) -> None:
        call = self._channel.stream_stream(STREAM_INFER)(metadata=[(LEFT_HEADER, call_id)])
        await call.write(stop_request(model))
        await call.done_writing()
        async for _ in call:
            continue


class _Calls(grpc.GenericRpcHandler):
    """Finds the handler of a call; messages stay bytes, and only some are parsed.

    Attributes:
        stopping: whether utterances are refused because the server is stopping.
        spans: makes the spans of calls for speech, if they are asked for.
    """

    stopping = False

    def __init__(self, channel: grpc.aio.Channel, options: GatewayOptions, departures: Departures) -> None:
        self._options = options
        self._channel = channel
        self._policy = Policy(options.open_models)
        self._pending = PendingBytes(options.max_pending_bytes)
        self._stalled_timeout_s = options.stalled_client_timeout_s
        self._arrival_timeout_s = options.arrival_timeout_s
        self._limit = CallLimit(MAX_CALLS)
        self._shedder = LoadShedder.of(options)
        self._departures = departures
        self._tries = tries_of(options.gateways)
        self._stages = frozenset(options.stages)
        self._whole = options.whole_models
        self._ask_health = partial(channel.unary_unary(HEALTH_CHECK), b"", timeout=HEALTH_TIMEOUT_S)
        self._health = HealthWatch(self._state)
        self._audit = AuditLog(options.audit_file, "server.audit_file")
        self.spans = open_spans(SERVER)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method

        async def answer(_: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
            try:
                client, named = ClientCall(context, self._stalled_timeout_s), _named(context)
                spans = self.spans if method in (INFER, STREAM_INFER) else None
                name, caller = named[REQUEST_HEADER], named.get(CLIENT_HEADER)
                audit = CallAudit(self._audit, method, context.peer(), caller, name)
                context.set_trailing_metadata([(REQUEST_HEADER, name)])
                with (
                    nullcontext() if method in HEALTH_CALLS else self._limit.counted(),
                    audit.call(),
                    spans.passed_on("gateway grpc", named) if spans else nullcontext(named) as told,
                ):
                    await self._answer(method, client, told, audit)
            except RefusedError as refusal:
                trailing = ((REQUEST_HEADER, name), *_pushback(refusal, named))
                await context.abort(grpc.StatusCode[refusal.status], str(refusal), trailing)
            except ClientGoneError:
                logger.debug("the client of a call to %s has left", method)

        # Unary calls, too, are read as streams: gRPC itself would wait without a limit for their message and
        # reader.
        return grpc.stream_stream_rpc_method_handler(answer)

    async def _answer(self, method: str, client: ClientCall, named: dict[str, str], audit: CallAudit) -> None:
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

    async def _ask(self, method: str, message: bytes, named: dict[str, str], audit: CallAudit) -> bytes:
        """Forward one request and return its response; the request ends when the client leaves."""
        if method == HEALTH_CHECK and self._unready:
            return NOT_SERVING
        if method == SERVER_READY and self._unready:
            return bytes(service_pb2.ServerReadyResponse(ready=False).SerializeToString())
        if method == MODEL_READY and (self.stopping or self._is_unknown(message)):
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

    async def _answer_of(
        self, method: str, message: bytes, named: dict[str, str], admitted: Admitted
    ) -> bytes:
        waiting = [admitted]

        async def ask() -> bytes:
            size = waiting.pop().size if waiting else 0  # The first answer, even a refusal, frees it.
            return await self._answer_of_one(method, message, named, admitted._replace(size=size))

        return await offered(ask, self._tries)

    async def _answer_of_one(
        self, method: str, message: bytes, named: dict[str, str], admitted: Admitted
    ) -> bytes:
        call_id = new_call_id()
        call = self._channel.unary_unary(method)(message, metadata=self._told_behind(named, call_id))
        answering = asyncio.create_task(self._counted(call, admitted.size))
        try:
            return await asyncio.shield(answering)
        except grpc.aio.AioRpcError as error:
            raise RefusedError(*_told(error)) from None
        finally:
            if not answering.done():
                self._see_off(call, call_id, admitted.models, _end(answering))

    def _told_behind(self, named: dict[str, str], call_id: str) -> list[tuple[str, str]]:
        """The metadata of a call to what stands behind this gateway."""
        elsewhere = {ELSEWHERE_HEADER: "1"} if self._options.gateways else {}
        return list((named | {CALL_HEADER: call_id} | elsewhere).items())

    def _see_off(
        self, call: Any, call_id: str, models: frozenset[str], ending: Coroutine[Any, Any, Any]
    ) -> None:
        """End a call whose client has left; another gateway sees off what it has begun itself."""
        if self._options.gateways:
            self._departures.cancel(call, ending)
        else:
            self._departures.see_off(call_id, models, ending)

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

    def _admit(self, method: str, message: bytes, named: dict[str, str], audit: CallAudit) -> Admitted:
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

    def _admit_inference(self, message: bytes, named: dict[str, str], audit: CallAudit) -> Admitted:
        request_id = ""
        try:
            request = parsed(service_pb2.ModelInferRequest, message)
            check_grpc(request, self._policy)
            request_id = request.id
            asked = UtteranceRequest.of_grpc(request, named.get(CLIENT_HEADER))
            asked = replace(asked, elsewhere=ELSEWHERE_HEADER in named)
            if asked.begins and self.stopping:
                raise RefusedError("UNAVAILABLE", STOPPING)
            if self._shedder is not None:
                self._shedder.check(asked)
            size = self._pending.take(len(message))
            admitted = Admitted(size, frozenset([request.model_name]), asked.begins)
        except RefusedError as refusal:
            audit.refused(request_id, refusal)
            raise
        audit.asked(asked)
        return admitted

    async def _state(self) -> bytes:
        return NOT_SERVING if self._unready else bytes(await self._ask_health())

    @property
    def _unready(self) -> bool:
        return self.stopping or self._options.starting

    async def _stream(self, client: ClientCall, named: dict[str, str], audit: CallAudit) -> None:
        admit = partial(self._admit_inference, named=named, audit=audit)
        first = await first_request(client, admit, self._arrival_timeout_s)
        if first is None:
            return  # The server need not know of a call without an admitted request.
        requests = Requests(first, partial(next_request, client, admit), again=self._tries > 1)
        try:
            ask = partial(self._stream_of_one, client, named, requests, audit)
            await offered(ask, self._tries, requests.restart)
        finally:
            await requests.close()

    async def _stream_of_one(
        self, client: ClientCall, named: dict[str, str], requests: Requests, audit: CallAudit
    ) -> None:
        call_id = new_call_id()
        call = self._channel.stream_stream(STREAM_INFER)(metadata=self._told_behind(named, call_id))
        server = ServerStream(call, self._pending)
        refused = False
        try:
            await exchange(client, requests, server, audit)
        except RefusedError:
            refused = True
            raise
        except grpc.aio.AioRpcError as error:
            raise RefusedError(*_told(error)) from None
        finally:
            if refused:
                self._departures.read_out(server.drain())
            elif not server.settle():
                if server.models.isdisjoint(self._stages):
                    self._see_off(call, call_id, server.models, server.drain())
                else:
                    self._departures.cancel(call, server.drain())


async def _end(answering: asyncio.Task[bytes]) -> None:
    await asyncio.wait([answering])


def _told(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    return reworded(error.code().name, error.details() or "")


def _pushback(refusal: RefusedError, named: Mapping[str, str]) -> list[tuple[str, str]]:
    """When gRPC's own retries come back: in the time that was told, or at once to another server."""
    told = RETRY_AFTER.search(str(refusal))
    if told is None or ELSEWHERE_HEADER in named:
        return []
    return [(PUSHBACK_HEADER, str(math.ceil(1000 * float(told[1]))))]


def _named(context: Any) -> dict[str, str]:
    """The metadata that the server gets: the request's name and trace, and what the client says of itself."""
    said = dict(context.invocation_metadata() or ())
    client, request = said.get(CLIENT_HEADER), said.get(REQUEST_HEADER)
    named = {} if client is None else {CLIENT_HEADER: str(client)[:MAX_NAME_LENGTH]}
    named[REQUEST_HEADER] = request_name(None if request is None else str(request))
    elsewhere = {ELSEWHERE_HEADER: "1"} if ELSEWHERE_HEADER in said else {}
    return named | elsewhere | trace_headers(said)


def _without_paths(answer: bytes) -> bytes:
    """A model's configuration without ``parameters``, which hold paths, sizes and addresses of the
    machine."""
    response = service_pb2.ModelConfigResponse.FromString(answer)
    response.config.ClearField("parameters")
    return bytes(response.SerializeToString())
