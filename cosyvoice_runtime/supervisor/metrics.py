"""The supervisor's own metrics, and the HTTP endpoint of all metrics for Prometheus."""

from __future__ import annotations

import logging
import shutil
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from cosyvoice_runtime.gpu.nvidia import has_driver
from cosyvoice_runtime.process.browsers import PageError, refuse_pages
from cosyvoice_runtime.process.listening import bound
from cosyvoice_runtime.settings.model import CPU
from cosyvoice_runtime.settings.repository import read_parameter
from cosyvoice_runtime.supervisor.calls import ControlError
from cosyvoice_runtime.supervisor.preflight import SHARED_MEMORY, existing_folder

logger = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CLOSE_INTERVAL_S = 0.05
MAX_READERS = 32
"""The most readers at a time: each takes a thread and a file of the supervisor."""
Page = Callable[[], str]


class MetricsEndpoint:
    """Serves ``/metrics`` from its own threads until it is closed.

    Args:
        addresses: addresses to listen on, each with every port.
        pages: makes the page of each port; what it raises as :class:`ControlError` is answered with 503.
        names: host names, besides localhost and addresses, that callers may use; None for any.

    Raises:
        OSError: a port can't be used.
    """

    def __init__(
        self, addresses: Sequence[str], pages: Mapping[int, Page], names: Collection[str] | None = None
    ) -> None:
        self._servers: list[_PageServer] = []
        try:
            for port, page in pages.items():
                self._servers += [_PageServer(bound(address, port), page, names) for address in addresses]
        except OSError:
            for server in self._servers:
                server.server_close()
            raise
        for server in self._servers:
            serve = threading.Thread(
                target=server.serve_forever, args=(CLOSE_INTERVAL_S,), name="metrics", daemon=True
            )
            serve.start()

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _PageServer(ThreadingTCPServer):
    # The method of http.server resolves the host's name, which takes seconds without DNS.
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, listening: socket.socket, page: Page, names: Collection[str] | None) -> None:
        self.page = page
        self.names = names
        self._readers: dict[Any, None] = {}
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_activate()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Close the oldest connection above the limit: its reader has stalled."""
        self._readers[request] = None
        if len(self._readers) > MAX_READERS:
            oldest = next(iter(self._readers))
            self._readers.pop(oldest, None)
            with suppress(OSError):  # The connection has just ended by itself.
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._readers.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        logger.debug("metrics were not sent to %s", client_address[0], exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _PageServer
    timeout = 10.0  # The client sends or reads nothing.

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        try:
            refuse_pages(self.headers.get("Host"), self.headers.get("Origin"), self.server.names)
        except PageError as error:
            self.send_error(HTTPStatus.FORBIDDEN, explain=str(error))
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

    def log_message(self, format: str, *values: Any) -> None:
        logger.debug(format, *values)


TRITONSERVER = "tritonserver"
NETWORKS = ("tensorrt_llm", "token2wav")
"""The models that may compute on a GPU; all others compute on the CPU."""


class SupervisorMetrics:
    """Metrics of restarts, failed probes, models on the CPU and free space.

    The numbers live as long as the supervisor, through each restart of its server.

    Args:
        repository: a rendered model repository.
        models: names of its models.
        logs: directory of the log, whose free space is shown with that of voices and shared memory.
    """

    def __init__(self, repository: Path, models: Collection[str], logs: Path) -> None:
        disable_created_metrics()
        self._registry = registry = CollectorRegistry()
        about = "Times that a process, or the processes of a model, were started again."
        self.restarts = Counter("cosyvoice_restarts", about, ["process"], registry=registry)
        self.failed_probes = Counter(
            "cosyvoice_failed_probes", "Failed probes.", ["model"], registry=registry
        )
        about = "1 where a model computes on the CPU although the driver of a GPU is here."
        on_cpu = Gauge("cosyvoice_cpu_fallback", about, ["model"], registry=registry)
        about = "Room on the disk of a place."
        room = Gauge("cosyvoice_disk_free_bytes", about, ["place"], registry=registry)
        ProcessCollector(registry=registry)
        for process in (TRITONSERVER, *models):
            self.restarts.labels(process)
        for model in models:
            self.failed_probes.labels(model)
        for model in NETWORKS:
            if device := read_parameter(repository / model, "device"):
                on_cpu.labels(model).set(device.startswith(CPU) and has_driver())
        folders = {"log": logs, "shared_memory": SHARED_MEMORY}
        if voices := read_parameter(repository / "cosyvoice2", "voices_dir"):
            folders["voices"] = Path(voices)
        for place, folder in folders.items():
            room.labels(place).set_function(partial(_free_bytes, folder))

    def page(self) -> str:
        """The metrics in Prometheus's text format 0.0.4."""
        return generate_latest(self._registry).decode()


def _free_bytes(folder: Path) -> int:
    """The free bytes for a folder, which may not exist yet."""
    return shutil.disk_usage(existing_folder(folder)).free
