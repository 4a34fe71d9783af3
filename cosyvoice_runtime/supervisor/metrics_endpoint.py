"""One page of metrics for Prometheus over HTTP."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from cosyvoice_runtime.supervisor.http_call import ControlError

logger = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CLOSE_INTERVAL_S = 0.05


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

    def __init__(self, host: str, port: int, page: Callable[[], str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.page = page
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        logger.warning("metrics were not sent to %s", client_address[0], exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _PageServer
    timeout = 10.0  # of a client that connects and says nothing

    def do_GET(self) -> None:
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
        self.wfile.write(page)

    def log_message(self, format: str, *values: Any) -> None:
        logger.debug(format, *values)
