"""Requests to tritonserver over HTTP."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.supervisor.guarded_call import Check, guarded, keep_waiting

CONNECT_TIMEOUT_S = 2.0


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
    headers: Mapping[str, str] | None = None,
    check: Check = keep_waiting,
) -> HttpAnswer:
    """Send a request without a body and read its answer.

    Args:
        url: ``host:port``.
        timeout_s: longest silence of the server.
        check: ends the call with what it raises.

    Raises:
        ControlError: there was no answer.
    """
    connection = http.client.HTTPConnection(url, timeout=min(timeout_s, CONNECT_TIMEOUT_S))
    try:
        with closing(connection):
            connection.connect()
            stream = connection.sock
            stream.settimeout(timeout_s)
            with guarded(check, lambda: _hang_up(stream)):
                connection.request(method, path, headers=dict(headers or {}))
                response = connection.getresponse()
                return HttpAnswer(response.status, response.read())
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(f"no answer to {path}: {error!r}") from error


def _hang_up(stream: socket.socket) -> None:
    with suppress(OSError):  # the server was faster
        stream.shutdown(socket.SHUT_RDWR)
