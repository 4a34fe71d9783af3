"""The supervisor's HTTP calls to tritonserver: loads and unloads of models, and its metrics."""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from cosyvoice_runtime.errors import CosyVoiceError

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 10.0
LIVE_TIMEOUT_S = 5.0
LOOK_INTERVAL_S = 5.0
QUEUED = re.compile(r'^nv_inference_pending_request_count\{model="([^"]+)".*\} (\d+)$', re.MULTILINE)


class ControlError(CosyVoiceError):
    """The server refused a call, or did not answer."""


class Control:
    """Loads and unloads models, and reads metrics.

    Whoever may load models may run code. These calls go through the server's own sockets, which no other user
    reaches; the gateways pass none of them on. HTTP has several threads, where the gRPC of Triton 2.51
    answers no other such call while a model loads. The end of the server, and of its models' processes, which
    inherit its sockets, ends each call.

    Args:
        http: the server's HTTP socket.
        metrics: the server's metrics socket.
    """

    def __init__(self, http: Path, metrics: Path) -> None:
        self._http = http
        self._metrics = metrics

    def live(self, tries: int = 1) -> bool:
        """Whether the server answers at least one of several health requests.

        Each comes by a connection of its own, as Triton may give one to a thread that waits for a load's end.
        """
        for _ in range(tries):
            with suppress(ControlError):
                self._request("GET", "health/live", LIVE_TIMEOUT_S)
                return True
        return False

    def load(self, model: str, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> None:
        """Load a model and wait until it is ready.

        Args:
            meanwhile: called every few seconds.

        Raises:
            ControlError: the load failed; the text is the model's own error.
        """
        self._request("POST", f"repository/models/{model}/load", timeout_s, meanwhile)

    def unload(self, model: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Refuse new requests to a model, whose requests in flight finish."""
        self._request("POST", f"repository/models/{model}/unload", timeout_s)

    def metrics(self) -> str:
        """The text of Triton's metrics page."""
        status, body = _call(self._metrics, "GET", "/metrics", ANSWER_TIMEOUT_S)
        if status != 200:
            raise ControlError(f"metrics: HTTP {status}")
        return body.decode()

    def queued_requests(self) -> Counter[str]:
        """The requests in Triton's queue by model."""
        counts: Counter[str] = Counter()
        for model, count in QUEUED.findall(self.metrics()):
            counts[model] += int(count)
        return counts

    def _request(
        self,
        method: str,
        path: str,
        timeout_s: float = ANSWER_TIMEOUT_S,
        meanwhile: Callable[[], None] | None = None,
    ) -> Any:
        status, body = _call(self._http, method, f"/v2/{path}", timeout_s, meanwhile)
        content = json.loads(body) if body else None
        if status != 200:
            raise ControlError(content["error"] if isinstance(content, dict) else f"HTTP {status}")
        return content


def _call(
    path: Path, method: str, target: str, timeout_s: float, meanwhile: Callable[[], None] | None = None
) -> tuple[int, bytes]:
    """Send a request without a body to a Unix socket, and return the status and body of the answer."""
    connection = http.client.HTTPConnection("localhost")
    try:
        with closing(connection), socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(min(timeout_s, CONNECT_TIMEOUT_S))
            stream.connect(str(path))
            stream.settimeout(timeout_s)
            connection.sock = stream
            connection.request(method, target)
            if meanwhile is not None:
                _call_until_readable(stream, timeout_s, meanwhile)
            response = connection.getresponse()
            return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(f"no answer to {target}: {error!r}") from error


def _call_until_readable(stream: socket.socket, timeout_s: float, meanwhile: Callable[[], None]) -> None:
    listening = select.poll()  # select() supports file numbers below 1,024 only.
    listening.register(stream, select.POLLIN)
    deadline = time.monotonic() + timeout_s
    while not listening.poll(1000 * LOOK_INTERVAL_S):
        if time.monotonic() > deadline:
            raise TimeoutError
        meanwhile()
