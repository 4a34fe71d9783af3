"""One page of metrics for Prometheus over HTTP."""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from cosyvoice_runtime.gateway.seldom_log import SeldomLog
from cosyvoice_runtime.supervisor.http_call import ControlError

logger = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CLOSE_INTERVAL_S = 0.05
MAX_READERS = 32
"""At once: each has a thread and a file of the supervisor's, which needs both for other things."""


class MetricsEndpoint:
    """Answers ``/metrics`` from threads of its own until closed.

    Args:
        page: makes the page; what it raises as :class:`ControlError` is answered with 503.

    Raises:
        OSError: the port can't be used.
    """

    def __init__(self, host: str, port: int, page: Callable[[], str]) -> None:
        self._server = _PageServer(host, port, page)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(CLOSE_INTERVAL_S,), name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _PageServer(ThreadingTCPServer):
    # Not http.server's: that one looks up the name of its host, which takes seconds where no DNS answers.
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, page: Callable[[], str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.page = page
        self._readers: dict[Any, None] = {}
        self._seldom = SeldomLog(logger)
        super().__init__((host, port), _Handler)

    @property
    def is_local(self) -> bool:
        """Whether it can be reached from this machine alone."""
        return ipaddress.ip_address(str(self.server_address[0])).is_loopback

    def process_request(self, request: Any, client_address: Any) -> None:
        """The oldest reader makes room: one that has taken so long says nothing, or takes nothing."""
        self._readers[request] = None
        if len(self._readers) > MAX_READERS:
            oldest = next(iter(self._readers))
            self._readers.pop(oldest, None)
            with suppress(OSError):  # it has just ended by itself
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._readers.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        error = sys.exception()
        if isinstance(error, OSError):
            self._seldom.warning("metrics were not sent to %s: %s", client_address[0], error)
        else:
            logger.warning("metrics were not sent to %s", client_address[0], exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _PageServer
    timeout = 10.0  # of a client that says nothing, or takes nothing

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self._asks_for_a_page():
            self.send_error(HTTPStatus.FORBIDDEN, "pages of browsers are not served")
            return
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND, "only /metrics is here")
            return
        try:
            page = self.server.page().encode()
        except ControlError as error:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=str(error))
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page)

    def _asks_for_a_page(self) -> bool:
        """Whether a page in a browser asks: of another site, or whose name has come to mean this machine."""
        host = self.headers.get("Host", "localhost").lower()
        named = host.partition(":")[0] if host.count(":") < 2 else host.strip("[").partition("]")[0]
        return "Origin" in self.headers or (
            self.server.is_local and named != "localhost" and not _is_address(named)
        )

    def log_message(self, format: str, *values: Any) -> None:
        logger.debug(format, *values)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
