"""Requests to tritonserver over HTTP."""

from __future__ import annotations

import http.client
import socket
from contextlib import closing, suppress
from dataclasses import dataclass

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.supervisor.guarded_call import Check, guarded, keep_waiting

CONNECT_TIMEOUT_S = 2.0
UNIX = "unix:"


class ControlError(CosyVoiceError):
    """The server refused, or did not answer."""


@dataclass(frozen=True)
class HttpAnswer:
    status: int
    body: bytes


def http_call(
    url: str,
    method: str,
    path: str,
    timeout_s: float,
    check: Check = keep_waiting,
) -> HttpAnswer:
    """Send a request without a body and read its answer.

    Args:
        url: ``host:port``, or ``unix:`` and the path of a socket.
        timeout_s: longest silence of the server.
        check: ends the call with what it raises.

    Raises:
        ControlError: there was no answer.
    """
    connection = _connection(url, min(timeout_s, CONNECT_TIMEOUT_S))
    try:
        with closing(connection):
            connection.connect()
            stream = connection.sock
            stream.settimeout(timeout_s)
            with guarded(check, lambda: _hang_up(stream)):
                connection.request(method, path)
                response = connection.getresponse()
                return HttpAnswer(response.status, response.read())
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(f"no answer to {path}: {error!r}") from error


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(url: str, timeout_s: float) -> http.client.HTTPConnection:
    if url.startswith(UNIX):
        return _UnixConnection(url.removeprefix(UNIX), timeout_s)
    return http.client.HTTPConnection(url, timeout=timeout_s)


def _hang_up(stream: socket.socket) -> None:
    with suppress(OSError):  # the server was faster
        stream.shutdown(socket.SHUT_RDWR)
