"""Every request's name: given or made, in the answer, in each line of the log, and told to the server; and
the headers of its client's trace, which the server is told as they came."""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cosyvoice_runtime.process.headers import REQUEST_HEADER, request_name, trace_headers
from cosyvoice_runtime.process.log_lines import log_lines

logger = logging.getLogger(__name__)

FORMAT = "%(asctime)s %(levelname)-7s [%(request_id)s] %(message)s"

STARTS = ("http.response.start", "websocket.accept", "websocket.http.response.start")
"""Messages of ASGI that bring the headers of an answer."""

current: ContextVar[str] = ContextVar("request_id", default="-")
"""Name of the request that is being answered."""
trace: ContextVar[dict[str, str] | None] = ContextVar("trace", default=None)
"""Headers of the trace that this request belongs to, empty or None without one."""


class RequestIds:
    """Names requests, and logs each with its status and its duration."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        name = request_name(headers.get(REQUEST_HEADER))
        current.set(name)
        trace.set(trace_headers(headers))
        started, status = time.monotonic(), 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] in STARTS:
                status = message.get("status", 101)
                MutableHeaders(scope=message)[REQUEST_HEADER] = name
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        finally:
            took = 1000 * (time.monotonic() - started)
            logger.info("%s %s %d %.0f ms", scope.get("method", "WS"), scope["path"], status, took)


class NamedRecords(logging.Filter):
    """Puts the request's name into records."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = current.get()
        return True


class WithoutHandshakes(logging.Filter):
    """Leaves out uvicorn's line for each websocket: it shows the query, where a key may stand."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "WebSocket" not in str(record.msg)


def set_up_logging() -> None:
    """Log to standard error, each line with the request that it is about."""
    logging.getLogger("uvicorn.error").addFilter(WithoutHandshakes())
    log_lines(logging.INFO, FORMAT, NamedRecords())
