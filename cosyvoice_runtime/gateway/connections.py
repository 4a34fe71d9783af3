"""The connections of the HTTP gateway: their number, and how long each may be idle."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

PAUSE_S = 60.0
"""The least time between two log lines; the next one says how many were left out."""


class RateLimitedLog:
    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._next = 0.0
        self._left_out = 0

    def warning(self, text: str, *values: object) -> None:
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        self._logger.warning(text + " (%d times since the last such line)", *values, self._left_out)
        self._next, self._left_out = now + PAUSE_S, 0


def log_accept_errors(loop: asyncio.AbstractEventLoop, logger: logging.Logger) -> None:
    """Log at a limited rate that a loop can't accept connections, which it retries continuously."""
    limited = RateLimitedLog(logger)

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "accept" in context.get("message", ""):
            limited.warning("connections can't be accepted: %s", context.get("exception"))
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


logger = logging.getLogger(__name__)

IDLE_S = 75.0
"""The time for which an idle connection is kept after an answer; proxies keep theirs for up to a minute."""


class Connections:
    """Limits the connections. A new one above the limit closes an idle one, first one that never sent a
    request.

    Args:
        server: the aiohttp server.
        limit: the most connections.
        arrival_timeout_s: longest time from the start of a connection, and from the first byte of each
            further request, until the headers have come.
    """

    def __init__(self, server: web.Server, limit: int, arrival_timeout_s: float, **options: Any) -> None:
        self._server = server
        self._limit = limit
        self._arrival_timeout_s = arrival_timeout_s
        self._options = options
        self._open: dict[Connection, None] = {}
        self._log = RateLimitedLog(logger)

    def __call__(self) -> Connection:
        """The protocol for a new connection."""
        return Connection(self, self._server, self._arrival_timeout_s, self._options)

    def enter(self, connection: Connection) -> None:
        if len(self._open) >= self._limit:
            self._make_room(connection)
        self._open[connection] = None

    def leave(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def _make_room(self, newest: Connection) -> None:
        silent = [connection for connection in self._open if connection.asks_nothing]
        gone = min(silent, key=lambda connection: connection.has_asked, default=newest)
        self._log.warning(
            "%d connections are open, the limit: one that %s is closed",
            self._limit,
            "has just come" if gone is newest else "asks nothing",
        )
        self.leave(gone)
        gone.force_close()


class Connection(web.RequestHandler):
    """An aiohttp connection with a limit on the time in which headers must arrive."""

    __slots__ = ("_arrival_timeout_s", "_due", "_others", "has_asked")

    def __init__(
        self, others: Connections, server: web.Server, arrival_timeout_s: float, options: dict[str, Any]
    ) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._others = others
        self._arrival_timeout_s = arrival_timeout_s
        self._due: asyncio.TimerHandle | None = None
        self.has_asked = False

    @property
    def asks_nothing(self) -> bool:
        """Whether no complete request waits for its answer."""
        return not self.has_asked or self._waits

    @property
    def _waits(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._expect_headers()
        self._others.enter(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._others.leave(self)
        self._headers_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._waits:
            self.has_asked = True
            self._headers_came()
        elif self._due is None:
            self._expect_headers()

    def _expect_headers(self) -> None:
        self._due = self._loop.call_later(self._arrival_timeout_s, self._give_up)

    def _headers_came(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _give_up(self) -> None:
        self._due = None
        if self.asks_nothing:
            self.force_close()


def is_ours(record: logging.LogRecord) -> bool:
    """Whether a log record is about more than a malformed request."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
