"""The HTTP gateway."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

from aiohttp import ClientError, ClientResponse, web
from aiohttp.http_exceptions import HttpProcessingError

from cosyvoice_runtime.gateway.audit import CallAudit
from cosyvoice_runtime.gateway.body_check import BodyCheck, BodyQuestion, encoding_of, unpack
from cosyvoice_runtime.gateway.connections import IDLE_S, Connections, is_ours, log_accept_errors
from cosyvoice_runtime.gateway.departures import Departures
from cosyvoice_runtime.gateway.http_answers import HTTP_OF, in_one_piece, pieces_of, require_success
from cosyvoice_runtime.gateway.http_behind import HttpBehind
from cosyvoice_runtime.gateway.limits import LoadShedder, PendingBytes, SlowReaderTimeout, most_connections
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.policy import (
    FOR_NOW,
    MAX_NAME_LENGTH,
    Policy,
    RefusedError,
    closed,
    in_the_name_of,
    invalid,
)
from cosyvoice_runtime.gateway.tries import offered
from cosyvoice_runtime.gateway.wording import (
    RESTARTING,
    RETRY_AFTER,
    STOPPING,
    how_far,
)
from cosyvoice_runtime.process.audit_log import AuditLog
from cosyvoice_runtime.process.browsers import PageError, refuse_pages
from cosyvoice_runtime.process.headers import (
    CALL_HEADER,
    CLIENT_HEADER,
    ELSEWHERE_HEADER,
    LEFT_HEADER,
    REQUEST_HEADER,
    new_call_id,
    request_name,
    trace_headers,
)
from cosyvoice_runtime.process.listening import bound, own_addresses, split_port
from cosyvoice_runtime.process.spans import SERVER, open_spans

logger = logging.getLogger(__name__)
logging.getLogger("aiohttp.server").addFilter(is_ours)

HEADER_LENGTH = "Inference-Header-Content-Length"
LENGTH = re.compile(r"[0-9]{1,10}")
PASSED_ON = ("Content-Type", HEADER_LENGTH)
"""These headers are forwarded in both directions."""
SERVER_READY = "/v2/health/ready"
MODEL = "/v2/models/{model}"
NAME = web.RequestKey("name", str)
ABOUT_A_MODEL = ("", "/ready", "/config", "/stats")
INFERENCE = ("/infer", "/generate", "/generate_stream")
STOP_INFER: dict[str, Any] = {
    "inputs": [{"name": "target_text", "datatype": "BYTES", "shape": [1, 1], "data": [""]}]
}
STOP_GENERATE: dict[str, Any] = {"target_text": ""}
"""Requests without a text: headers tell the model which call to stop."""
BACKLOG = 128
"""The most connections that wait to be accepted, and that are accepted at once."""
SETTLE_S = 2.0
"""The longest wait, when the gateway closes, for calls whose clients have left."""
DECOUPLED = "model_transaction_policy"


class HttpGateway:
    """Serves HTTP in one event loop until it is closed."""

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._policy = Policy(options.open_models)
        self._server = HttpBehind(options)
        self._pending = PendingBytes(options.max_pending_bytes)
        self._shedder = LoadShedder.of(options)
        self._answered_once: set[str] = set()
        self._stopping = False
        self._departures = Departures(self._stop)
        self._body_check = BodyCheck()
        self._audit = AuditLog(options.audit_file, "server.audit_file")
        self._spans = open_spans(SERVER)
        self._listening: list[asyncio.Server] = []
        middlewares = [_errors_as_json, self._no_pages]
        app = web.Application(client_max_size=options.max_request_bytes, middlewares=middlewares)
        for path in ("/v2", "/v2/health/live", SERVER_READY, "/v2/models/stats"):
            app.router.add_get(path, self._ask)
        for prefix in (MODEL, MODEL + "/versions/{version}"):
            for path in ABOUT_A_MODEL:
                app.router.add_get(prefix + path, self._ask)
            for path in INFERENCE:
                app.router.add_post(prefix + path, self._infer)
        app.on_response_prepare.append(self._name_answer)
        self._runner = web.AppRunner(app, handler_cancellation=True)

    async def start(self) -> None:
        """Listen at the address, and connect to the server; an OSError tells of an unusable address."""
        await self._server.open()
        await self._runner.setup()
        assert self._runner.server is not None
        connections = Connections(
            self._runner.server,
            most_connections(files_each=2),  # Each client connection needs one to the server as well.
            self._options.arrival_timeout_s,
            keepalive_timeout=IDLE_S,
            auto_decompress=False,
            access_log=None,
        )
        loop = asyncio.get_running_loop()
        log_accept_errors(loop, logger)
        host, port = split_port(self._options.address)
        for address in own_addresses(host, "server.host"):
            listening = await loop.create_server(connections, sock=bound(address, port), backlog=BACKLOG)
            self._listening.append(listening)

    async def leave(self) -> None:
        """Begin no utterance any more; connections end with the answers that are on their way."""
        self._stopping = True

    async def close(self) -> None:
        for listening in self._listening:
            listening.close()
        await self._runner.cleanup()
        await self._departures.over(SETTLE_S)
        await self._server.close()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)

    @web.middleware
    async def _no_pages(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            refuse_pages(request.headers.get("Host"), request.headers.get("Origin"), self._options.names)
        except PageError as error:
            raise RefusedError("PERMISSION_DENIED", str(error)) from None
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _ask(self, request: web.Request) -> web.Response:
        path = self._checked_path(request)
        if self._stopping and path.endswith("/ready"):
            raise RefusedError("INVALID_ARGUMENT", STOPPING)  # The status of tritonserver, too, is 400 then.
        if path == SERVER_READY and self._options.starting:
            raise RefusedError("INVALID_ARGUMENT", await asyncio.to_thread(how_far, self._options.shared))
        # The address is ready while one of several servers is.
        statuses = (FOR_NOW, "INVALID_ARGUMENT") if path.endswith("/ready") else (FOR_NOW,)
        ask = partial(self._asked, self._server.in_turn(), path)
        return await offered(ask, self._server.servers, statuses=statuses)

    async def _asked(self, servers: Iterator[str], path: str) -> web.Response:
        async with await self._reached(next(servers), "GET", path) as answer:
            await require_success(answer)
            if path.endswith("/config"):
                return web.json_response(_without_paths(await answer.json()))
            return web.Response(body=await answer.read(), headers=_passed_on(answer.headers))

    async def _reached(self, server: str, method: str, path: str, **request: Any) -> ClientResponse:
        try:
            return await self._server.ask(server, method, path, **request)
        except ClientError as error:
            logger.warning("tritonserver: %r", error)
            raise RefusedError("UNAVAILABLE", RESTARTING) from error

    async def _infer(self, request: web.Request) -> web.StreamResponse:
        said, route = _said(request), f"{request.method} {request.path}"
        client, name = said.get(CLIENT_HEADER), said[REQUEST_HEADER]
        audit, spans = CallAudit(self._audit, route, str(request.remote), client, name), self._spans
        with audit.call(), spans.passed_on("gateway http", said) if spans else nullcontext(said) as told:
            return await self._answered(request, told, audit)

    async def _answered(
        self, request: web.Request, said: dict[str, str], audit: CallAudit
    ) -> web.StreamResponse:
        path = self._checked_path(request)
        body = await self._body(request)
        call_id = new_call_id()
        said |= {CALL_HEADER: call_id} | ({ELSEWHERE_HEADER: "1"} if self._server.several else {})
        model, whole = request.match_info["model"], path.endswith("/infer")
        question = BodyQuestion(model, whole, _header_bytes(request) if whole else None, said)
        # The request is registered before the check, in which long bodies wait.
        taken = self._pending.take(len(body))
        try:
            body, asked = await self._body_check.check(question, body)
            instead = None if path.endswith("/generate_stream") else self._options.whole_models.get(model)
            if instead is not None:
                path = _path_of(instead, request)
            elif path.endswith("/generate"):
                await self._require_one_answer(path)
            if self._stopping and asked.begins:
                raise RefusedError("UNAVAILABLE", STOPPING)
            if self._shedder is not None:
                self._shedder.check(asked)
        except BaseException:
            self._pending.give_back(taken)
            raise
        headers = _passed_on(request.headers) | said
        audit.asked(asked)
        audit.spoke(None)
        asked_servers: list[asyncio.Task[ClientResponse]] = []
        servers = self._server.in_turn()

        async def ask() -> ClientResponse:
            size = 0 if asked_servers else taken  # The first answer, even a refusal, frees it.
            asking = asyncio.create_task(self._inferred(next(servers), path, body, headers, size))
            asked_servers.append(asking)
            answer = await asyncio.shield(asking)
            await require_success(answer)
            return answer

        try:
            answer = await offered(ask, self._server.servers)
            if instead is None:
                return await self._pass_on(request, _passed_on(answer.headers), await pieces_of(answer))
            renamed, longer_by = in_the_name_of(model, await answer.read())
            headers = _passed_on(answer.headers)
            if HEADER_LENGTH in headers:
                headers[HEADER_LENGTH] = str(int(headers[HEADER_LENGTH]) + longer_by)
            return await self._pass_on(request, headers, in_one_piece(renamed))
        finally:
            for asking in asked_servers:
                if not _is_read(asking):
                    self._see_off(call_id, path, asking)

    def _see_off(self, call_id: str, path: str, asking: asyncio.Task[ClientResponse]) -> None:
        """End a request whose client has left; another gateway sees off what it has begun itself."""
        if not self._server.several:
            self._departures.see_off(call_id, [path], _drain(asking))
        elif asking.done():
            asking.result().close()
        else:
            asking.cancel()

    async def _pass_on(
        self, request: web.Request, headers: dict[str, str], pieces: AsyncIterator[bytes]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        assert request.transport is not None
        # Closing the connection ends the client's request, and drops what waits to be sent.
        limit_s, give_up = self._options.stalled_client_timeout_s, request.transport.abort
        timeout = SlowReaderTimeout(limit_s, str(request.remote), give_up)
        async for piece in pieces:
            with timeout.during(len(piece)):
                await response.write(piece)
        with timeout.during(0):
            await response.write_eof()
        return response

    async def _inferred(
        self, server: str, path: str, body: bytes, headers: dict[str, str], taken: int
    ) -> ClientResponse:
        try:
            return await self._reached(server, "POST", path, data=body, headers=headers)
        finally:
            self._pending.give_back(taken)

    async def _stop(self, path: str, call_id: str) -> None:
        said = {LEFT_HEADER: call_id}
        body = STOP_INFER if path.endswith("/infer") else STOP_GENERATE | said
        server = next(self._server.in_turn())
        async with await self._server.ask(server, "POST", path, json=body, headers=said) as answer:
            await answer.read()

    async def _name_answer(self, request: web.Request, answer: web.StreamResponse) -> None:
        answer.headers[REQUEST_HEADER] = _request_name(request)
        if self._stopping:
            answer.headers["Connection"] = "close"
            answer.force_close()

    def _checked_path(self, request: web.Request) -> str:
        """The path for the server, built from names that were checked."""
        model, version = request.match_info.get("model"), request.match_info.get("version", "")
        if model is None or request.path == "/v2/models/stats":
            return request.path
        self._policy.check_model(model, version)
        return request.rel_url.raw_path

    async def _body(self, request: web.Request) -> bytes:
        """Read and decompress the body; it is refused if late, too large, or not as its headers say."""
        limit_s, limit = self._options.arrival_timeout_s, self._options.max_request_bytes
        encoding = encoding_of(request.headers.getall("Content-Encoding", []))
        if (request.content_length or 0) > limit:
            raise web.HTTPRequestEntityTooLarge(limit)
        try:
            async with asyncio.timeout(limit_s):
                body = await request.read()
        except TimeoutError:
            raise invalid("body", "incomplete", f"at most {limit_s:g} s to send it") from None
        except (HttpProcessingError, web.RequestPayloadError) as error:
            raise invalid("body", type(error).__name__, "a whole body is expected") from None
        if encoding is None:
            return body
        return await asyncio.to_thread(unpack, body, encoding, limit)

    async def _require_one_answer(self, path: str) -> None:
        """Refuse a unary call to a streaming model, which would compute the whole answer and then fail."""
        if path in self._answered_once or self._server.several:  # The others' gateways require it.
            return
        server, configuration = next(self._server.in_turn()), path.removesuffix("/generate") + "/config"
        async with await self._reached(server, "GET", configuration) as answer:
            await require_success(answer)
            if (await answer.json()).get(DECOUPLED, {}).get("decoupled"):
                raise RefusedError("UNIMPLEMENTED", "generate: this model streams; use generate_stream")
        self._answered_once.add(path)


def _is_read(asking: asyncio.Task[ClientResponse]) -> bool:
    return asking.done() and (asking.exception() is not None or asking.result().content.at_eof())


async def _drain(asking: asyncio.Task[ClientResponse]) -> None:
    async for _ in (await asking).content.iter_any():
        continue


def _path_of(model: str, request: web.Request) -> str:
    """The path of the same request to another model."""
    version = request.match_info.get("version")
    at = "" if version is None else f"/versions/{version}"
    return f"{MODEL.format(model=model)}{at}/{request.path.rpartition('/')[2]}"


@web.middleware
async def _errors_as_json(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        answer: web.StreamResponse = await handler(request)
        return answer
    except RefusedError as refusal:
        return _refusal(refusal)
    except web.HTTPRequestEntityTooLarge:
        limit = request.app._client_max_size
        return _refusal(RefusedError("RESOURCE_EXHAUSTED", f"body: larger than {limit} bytes, the limit"))
    except web.HTTPException as error:
        if error.status in (404, 405):
            return _refusal(closed(f"{request.method} {request.path}"))
        return _refusal(RefusedError("INVALID_ARGUMENT", error.reason))
    except ClientError as error:
        logger.warning("tritonserver: %r", error)
        return _refusal(RefusedError("UNAVAILABLE", RESTARTING))


def _refusal(refusal: RefusedError) -> web.Response:
    when = RETRY_AFTER.search(str(refusal))
    headers = {"Retry-After": str(math.ceil(float(when[1])))} if when else {}
    status = HTTP_OF.get(refusal.status, 500)
    return web.json_response({"error": str(refusal)}, status=status, headers=headers)


def _header_bytes(request: web.Request) -> int | None:
    text = request.headers.get(HEADER_LENGTH)
    if text is not None and not LENGTH.fullmatch(text):
        raise invalid(HEADER_LENGTH, text, "a number of 1 to 10 digits is expected")
    return None if text is None else int(text)


def _passed_on(headers: Any) -> dict[str, str]:
    return {name: headers[name] for name in PASSED_ON if name in headers}


def _said(request: web.Request) -> dict[str, str]:
    """The name of the request, that of the client if the request has one, whether the client asks another
    server when it is refused, and the trace that the request belongs to."""
    name = request.headers.get(CLIENT_HEADER)
    sayable = name is not None and name.isascii() and name.isprintable()
    client = {CLIENT_HEADER: name[:MAX_NAME_LENGTH]} if name and sayable else {}
    named = {REQUEST_HEADER: _request_name(request)}
    elsewhere = {ELSEWHERE_HEADER: "1"} if ELSEWHERE_HEADER in request.headers else {}
    return client | named | elsewhere | trace_headers(request.headers)


def _request_name(request: web.Request) -> str:
    """The name of a request in logs and in its answer."""
    if NAME not in request:
        request[NAME] = request_name(request.headers.get(REQUEST_HEADER))
    return request[NAME]


def _without_paths(config: dict[str, Any]) -> dict[str, Any]:
    """A model's configuration without ``parameters``, which hold paths, sizes and addresses of the
    machine."""
    return {key: value for key, value in config.items() if key != "parameters"}
