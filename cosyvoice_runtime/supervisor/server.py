"""A supervised tritonserver: up when every model has answered, down without losing a request."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.policy import whole_models
from cosyvoice_runtime.metrics.page import read_request_counts, render_page
from cosyvoice_runtime.process.headers import HANDED_ON, PROBE_HEADER, PROBE_KEY_VARIABLE
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.settings.repository import home_of
from cosyvoice_runtime.supervisor import preflight
from cosyvoice_runtime.supervisor.calls import Control, ControlError, ProbeFunction, read_probes
from cosyvoice_runtime.supervisor.errors import (
    ServerDiedError,
    ServerStuckError,
    StartError,
    StopRequestedError,
    SupervisorError,
)
from cosyvoice_runtime.supervisor.gateway_process import GatewayProcess, callable_names, gateway_options
from cosyvoice_runtime.supervisor.metrics import TRITONSERVER, MetricsEndpoint, SupervisorMetrics
from cosyvoice_runtime.supervisor.models import Models
from cosyvoice_runtime.supervisor.places import ServerPlace
from cosyvoice_runtime.supervisor.preflight import ServerPorts, find_triton
from cosyvoice_runtime.supervisor.process import LogFile, ServerProcess, new_run_directory
from cosyvoice_runtime.supervisor.watch import Watch

if TYPE_CHECKING:
    from typing import Self

logger = logging.getLogger(__name__)

LIVE_INTERVAL_S = 0.05
SIGNAL_INTERVAL_S = 0.5
"""The longest delay of a signal."""
END_S = 0.5
"""The time in which a server whose call failed may turn out to have ended."""
PENDING_SHARE = 8
"""The share of shared memory for the large requests of one protocol: each entry model has a region, which
grows by more than is needed."""
ALONE = ServerPlace()


def wait_awake(event: threading.Event) -> None:
    """Wait for an event in the main thread, and run signal handlers meanwhile.

    Python's handlers run when the main thread goes on. The system may give a signal to another thread, and
    the main thread then sleeps on in a wait that has no end.
    """
    while not event.wait(SIGNAL_INTERVAL_S):
        pass


class Server:
    """tritonserver around a rendered model repository::

        with Server(Path("build/model_repo")) as server:
            client = tritonclient.grpc.InferenceServerClient(server.grpc_url)

    tritonserver itself listens on Unix sockets in a folder that only its own user may enter. The supervisor
    and the gateways come that way, and need no key.

    Args:
        repository: a rendered model repository.
        settings: ports, timeouts and limits.
        probes: by model, instead of the repository's ``probe.json`` files.
        place: where it runs, if it is one of several.

    Attributes:
        drained: after :meth:`stop`, whether every request in flight got its answer.
        http_url, grpc_url: the ``host:port`` for Triton's clients.
        metrics_url: the ``host:port`` of ``/metrics`` with all metrics, Triton's and the models'.
        triton_metrics_url: the ``host:port`` of ``/metrics`` with Triton's own metrics.
    """

    def __init__(
        self,
        repository: Path,
        settings: ServerSettings | None = None,
        probes: Mapping[str, ProbeFunction] | None = None,
        place: ServerPlace = ALONE,
    ) -> None:
        self.settings = settings or ServerSettings()
        self._place = place
        self.drained = True
        self._repository = repository
        self._names = preflight.models_of(repository)
        self._probe_key = secrets.token_hex(16)
        if probes is None:
            probes = read_probes(repository, self._probe_key, self.settings.probe_numbers)
        self._probes = probes
        self._ports = ports = ServerPorts.choose(self.settings)
        self.http_url, self.grpc_url = ports.url(ports.http), ports.url(ports.grpc)
        self.metrics_url, self.triton_metrics_url = ports.url(ports.model_metrics), ports.url(ports.metrics)
        self._log = LogFile(self.settings.log_file, self.settings.max_log_mib << 20)
        self._run_dir = new_run_directory()
        self._ready_file = self._run_dir / "ready"
        self._control = Control(self._run_dir / "http", self._run_dir / "triton_metrics")
        self._gateways: list[GatewayProcess] = []
        self._process: ServerProcess | None = None
        self._metrics: MetricsEndpoint | None = None
        self._counts: SupervisorMetrics | None = None
        self._models: Models | None = None
        self._watch: Watch | None = None
        self._failure: SupervisorError | None = None
        self._stop_requested = threading.Event()
        self._hurry = threading.Event()
        self._ending = threading.Event()
        self._starting = False

    @property
    def session(self) -> int:
        """The session id of all processes of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.session

    def inflight(self) -> dict[str, int]:
        """The requests in progress by model, as the models report them (``metrics/metrics.py``)."""
        return {} if self._process is None else read_request_counts(self._process.metrics)

    @property
    def reloads(self) -> Counter[str]:
        """The number of reloads of each model."""
        return Counter() if self._watch is None else self._watch.reloads

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and return when every model has answered its probe.

        A server that has been stopped can be started again, at the same addresses.

        Raises:
            PreflightError: the server could not have run and was not started.
            StartError: it, or one of its models, did not come up; it is stopped again.
            StopRequestedError: :meth:`request_stop` was called.
        """
        started = time.monotonic()
        self._failure = self._models = self._watch = None
        self._ending.clear()
        triton = find_triton()
        preflight.check(triton, self._ports, self.settings, self._repository)
        logger.info("%s", triton.origin)
        logger.info("%s serves %s", self._repository, preflight.checkpoint_of(self._repository))
        counts = self._count_start()
        variables = {PROBE_KEY_VARIABLE: self._probe_key, **self._place.variables}
        process = ServerProcess(triton, self._log, self._run_dir, variables, self._on_end)
        self._process, self._starting = process, True
        limit = threading.Timer(self.settings.start_timeout_s, self._kill)
        try:
            self._bring_up(process, counts, limit)
            self._starting = False
            self._require_no_stop()
        except BaseException as error:
            reason = self._why_not_up(process, started)
            self._end()
            # RuntimeError means that no thread can be started.
            if isinstance(error, (OSError, RuntimeError)):
                reason = reason or StartError(f"the server can't be started: {error}")
            if reason is None or not isinstance(error, Exception):
                raise
            raise reason from error
        finally:
            limit.cancel()
            self._starting = False
        seconds = time.monotonic() - started
        urls = self.grpc_url, self.http_url, self.metrics_url
        logger.info("all models answer after %.1f s: gRPC %s, HTTP %s, metrics %s", seconds, *urls)

    def wait(self) -> None:
        """Return when :meth:`request_stop` is called; an error tells that the server can't be kept up."""
        wait_awake(self._ending)
        self.require()

    def require(self) -> None:
        """Raise the errors of :meth:`wait` without waiting."""
        if self._failure is not None:
            raise self._failure

    def request_stop(self) -> None:
        """Make :meth:`start` or :meth:`wait` return; a second call ends all waiting."""
        if self._stop_requested.is_set():
            self._hurry.set()
        self._stop_requested.set()
        self._ending.set()
        if self._starting or self._hurry.is_set():
            self._kill()

    def stop(self) -> None:
        """Let requests in flight finish, then end the server and remove all it leaves behind."""
        if self._process is None:
            return
        stuck = isinstance(self._failure, ServerStuckError)
        if stuck:
            self._process.kill()
        if self._watch is not None:
            self._watch.close()
        self.drained = not stuck and self._process.running() and self._drain()
        # A server that loads a model would end only after that, and no request waits for it any more.
        loads = self._models is not None and self._models.loading
        self._end(0.0 if stuck or loads else self.settings.exit_timeout_s)
        self._process = None
        logger.info(
            "server stopped, %s", "every request answered" if self.drained else "requests were cut off"
        )

    def _why_not_up(self, process: ServerProcess, started: float) -> SupervisorError | None:
        """The cause of a failed call during the start, if it says more than the call's own error."""
        if self._stop_requested.is_set():
            return StopRequestedError("told to stop while starting")
        if time.monotonic() - started >= self.settings.start_timeout_s:
            return StartError(f"not up within {self.settings.start_timeout_s:.0f} s")
        if process.ended.wait(END_S):
            reasons = process.errors() or [f"see {self.settings.log_file}"]
            return StartError("tritonserver ended while starting: " + "; ".join(reasons))
        return None

    def _require_no_stop(self) -> None:
        if self._stop_requested.is_set():
            raise StopRequestedError("told to stop while starting")

    def _bring_up(self, process: ServerProcess, counts: SupervisorMetrics, limit: threading.Timer) -> None:
        grpc_socket = self._run_dir / "grpc:1"  # tritonserver appends a port to every address.
        process.start(self._repository, self._arguments())
        limit.start()
        self._metrics = self._serve_metrics(process, counts)
        sockets = ("grpc", self._ports.grpc, grpc_socket), ("http", self._ports.http, self._run_dir / "http")
        for protocol, port, socket in sockets:
            options = self._gateway_options(process, port, socket)
            self._gateways.append(GatewayProcess(process, protocol, options, counts, self.settings))
        while not self._control.live():
            self._require_no_stop()
            if not process.running():
                raise StartError("tritonserver ended")
            self._stop_requested.wait(LIVE_INTERVAL_S)
        for gateway in self._gateways:
            gateway.wait_until_open()
        models = Models(
            self._names, process, self._control, self._probes, f"unix:{grpc_socket}", self.settings
        )
        models.bring_up()
        self._ready_file.touch()
        self._models = models
        home = partial(home_of, self._repository)
        self._watch = Watch(process, models, home, self.settings, counts, self._fail)

    def _arguments(self) -> list[str]:
        addresses = {name: f"unix:{self._run_dir / name}" for name in ("http", "grpc")}
        addresses["metrics"] = f"unix:{self._run_dir / 'triton_metrics'}"
        return [
            # Models are loaded one by one over HTTP, which shows progress and each model's own error.
            "--model-control-mode=explicit",
            "--disable-auto-complete-config",
            "--exit-timeout-secs=1",  # The server need not wait: requests in flight have finished.
            "--metrics-config=histogram_latencies=true",
            # A pooled request keeps its model in use, which then never finishes unloading.
            "--grpc-infer-allocation-pool-size=0",
            # The gateways send the names of clients and of calls that ended. No other client header is
            # forwarded, so the key proves a probe.
            f"--http-header-forward-pattern=(?i)({'|'.join(HANDED_ON)})",
            f"--grpc-header-forward-pattern=(?i)({'|'.join((*HANDED_ON, PROBE_HEADER))})",
            *(f"--{name}-address={address}" for name, address in addresses.items()),
            *(f"--{name}-port=1" for name in addresses),
        ]

    def _gateway_options(self, process: ServerProcess, port: int, socket: Path) -> GatewayOptions:
        names = tuple(self._names)
        return replace(
            gateway_options(self.settings, self._ports, port, names, self._ready_file),
            server=str(socket),
            stages=tuple(name for name in names if name not in self.settings.entry_models),
            # All servers of the machine share this memory.
            max_pending_bytes=(preflight.free_shared_mib() << 20) // (PENDING_SHARE * self._place.servers),
            shared=str(process.metrics),
            whole_models=whole_models(names),
        )

    def _count_start(self) -> SupervisorMetrics:
        if self._counts is None:
            self._counts = SupervisorMetrics(self._repository, self._names, self.settings.log_file.parent)
        else:
            self._counts.restarts.labels(TRITONSERVER).inc()
        return self._counts

    def _serve_metrics(self, process: ServerProcess, counts: SupervisorMetrics) -> MetricsEndpoint:
        def page() -> str:
            return self._control.metrics() + render_page(process.metrics) + counts.page()

        pages = {self._ports.model_metrics: page, self._ports.metrics: self._control.metrics}
        try:
            return MetricsEndpoint(self._ports.addresses, pages, callable_names(self.settings, self._ports))
        except OSError as error:
            raise StartError(f"metrics can't be served on {self._ports.host}: {error}") from error

    def _end(self, exit_timeout_s: float = 0.0) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        while self._gateways:
            self._gateways.pop().close()
        if self._process is not None:
            self._process.stop(exit_timeout_s)

    def _kill(self) -> None:
        """Kill the server and end all waits; :meth:`_end` removes what is left."""
        if self._process is not None:
            self._process.kill()
        for gateway in list(self._gateways):
            gateway.kill()

    def _drain(self) -> bool:
        assert self._models is not None
        for gateway in self._gateways:
            gateway.leave()
        try:
            self._models.unload_all(self._hurry)
        except ControlError as error:
            logger.warning("requests in flight were not waited for: %s", error)
            return False
        return True

    def _on_end(self, code: int) -> None:
        if not self._stop_requested.is_set():
            self._fail(ServerDiedError(f"tritonserver ended by itself with exit code {code}; see its log"))

    def _fail(self, failure: SupervisorError) -> None:
        if self._failure is None:
            self._failure = failure
        self._ending.set()
