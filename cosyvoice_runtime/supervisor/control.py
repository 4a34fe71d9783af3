"""What the supervisor asks tritonserver over HTTP: its models' states, loads and unloads, and its metrics."""

from __future__ import annotations

import http.client
import json
import select
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from cosyvoice_runtime.errors import CosyVoiceError

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 10.0
LIVE_TIMEOUT_S, LIVE_TRIES = 5.0, 3
METRICS_TIMEOUT_S = 5.0
LOOK_INTERVAL_S = 1.0
UNIX = "unix:"
QUEUED = "nv_inference_pending_request_count"


class ControlError(CosyVoiceError):
    """The server refused, or did not answer."""


class Control:
    """Loads and unloads models.

    Whoever may load models may run code. These calls go through the server's own socket, which no other user
    reaches; the gateways pass none of them on. The end of the server, and of its models' processes, which
    inherit its sockets, ends each call.

    Args:
        url: ``unix:`` and the path of the server's socket of HTTP, or ``host:port``.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def live(self) -> bool:
        try:
            self._request("GET", "health/live", LIVE_TIMEOUT_S)
        except ControlError:
            return False
        return True

    def require_live(self) -> None:
        """Asks over several connections, in case Triton gives one to a thread that waits for a load's end.

        Raises:
            ControlError: the server answers none of them in time.
        """
        for _ in range(LIVE_TRIES - 1):
            if self.live():
                return
        self._request("GET", "health/live", LIVE_TIMEOUT_S)

    def states(self) -> dict[str, str]:
        """State of every model of the repository: READY, LOADING, UNLOADING, UNAVAILABLE."""
        entries = self._request("POST", "repository/index", ANSWER_TIMEOUT_S)
        return {entry["name"]: entry.get("state", "UNAVAILABLE") for entry in entries}

    def load(self, model: str, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> None:
        """Load a model and wait for it.

        Args:
            meanwhile: called every second.

        Raises:
            ControlError: it can't be loaded; holds the model's own error.
        """
        self._request("POST", f"repository/models/{model}/load", timeout_s, meanwhile)

    def unload(self, model: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Refuse new requests to a model; the ones in flight finish (see :meth:`states`)."""
        self._request("POST", f"repository/models/{model}/unload", timeout_s)

    def _request(
        self, method: str, path: str, timeout_s: float, meanwhile: Callable[[], None] | None = None
    ) -> Any:
        status, body = http_call(self._url, method, f"/v2/{path}", timeout_s, meanwhile)
        content = json.loads(body) if body else None
        if status != 200:
            raise ControlError(content["error"] if isinstance(content, dict) else f"HTTP {status}")
        return content


def triton_metrics(url: str) -> str:
    """Triton's page of metrics.

    Raises:
        ControlError: it can't be read.
    """
    status, body = http_call(url, "GET", "/metrics", METRICS_TIMEOUT_S)
    if status != 200:
        raise ControlError(f"metrics: HTTP {status}")
    return body.decode()


def queued_requests(url: str) -> Counter[str]:
    """Requests that wait in Triton's queue, by model.

    Raises:
        ControlError: the metrics can't be read.
    """
    counts: Counter[str] = Counter()
    for family in text_string_to_metric_families(triton_metrics(url)):
        if family.name == QUEUED:
            for sample in family.samples:
                counts[sample.labels["model"]] += int(sample.value)
    return counts


def http_call(
    url: str, method: str, path: str, timeout_s: float, meanwhile: Callable[[], None] | None = None
) -> tuple[int, bytes]:
    """Send a request without a body; returns: the answer's status and body.

    Args:
        url: ``host:port``, or ``unix:`` and the path of a socket.
        timeout_s: longest silence of the server.
        meanwhile: called every second until the answer begins.

    Raises:
        ControlError: there was no answer.
    """
    connection = _connection(url, min(timeout_s, CONNECT_TIMEOUT_S))
    try:
        with closing(connection):
            connection.connect()
            connection.sock.settimeout(timeout_s)
            connection.request(method, path)
            if meanwhile is not None:
                _call_until_readable(connection.sock, timeout_s, meanwhile)
            response = connection.getresponse()
            return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(f"no answer to {path}: {error!r}") from error


def _call_until_readable(stream: socket.socket, timeout_s: float, meanwhile: Callable[[], None]) -> None:
    listening = select.poll()  # select() knows no more than 1,024 files
    listening.register(stream, select.POLLIN)
    deadline = time.monotonic() + timeout_s
    while not listening.poll(1000 * LOOK_INTERVAL_S):
        if time.monotonic() > deadline:
            raise TimeoutError
        meanwhile()


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
