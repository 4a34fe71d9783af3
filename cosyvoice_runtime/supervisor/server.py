"""A supervised tritonserver: up when every model has answered, down without losing a request."""

from __future__ import annotations

import logging
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.whole_answer import whole_models
from cosyvoice_runtime.process.headers import HANDED_ON, PROBE_HEADER
from cosyvoice_runtime.process.listening import is_loopback
from cosyvoice_runtime.process.run_variables import PROBE_KEY_VARIABLE
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.settings.rendered import home_of
from cosyvoice_runtime.settings.server import EVERY_MODEL
from cosyvoice_runtime.supervisor import preflight, shared_memory
from cosyvoice_runtime.supervisor.control import Control, ControlError, queued_requests, triton_metrics
from cosyvoice_runtime.supervisor.errors import (
    LostRequestsError,
    ServerDiedError,
    ServerSilentError,
    StartError,
    StopRequestedError,
    SupervisorError,
)
from cosyvoice_runtime.supervisor.gateway_process import GatewayProcess
from cosyvoice_runtime.supervisor.log_file import LogFile
from cosyvoice_runtime.supervisor.metrics_endpoint import MetricsEndpoint
from cosyvoice_runtime.supervisor.models import Models
from cosyvoice_runtime.supervisor.probe import ProbeFunction, read_probes
from cosyvoice_runtime.supervisor.process import METRICS, ServerProcess
from cosyvoice_runtime.supervisor.server_ports import ServerPorts
from cosyvoice_runtime.supervisor.supervisor_metrics import TRITONSERVER, SupervisorMetrics
from cosyvoice_runtime.supervisor.triton import Interpreter, find_triton, tell_unused_gpu
from cosyvoice_runtime.supervisor.watch import Watch

if TYPE_CHECKING:
    from typing import Self

logger = logging.getLogger(__name__)

LIVE_INTERVAL_S = 0.05
SIGNAL_INTERVAL_S = 0.5
"""For which a signal waits at most."""
END_S = 0.5
"""For which a server whose call failed may turn out to have ended."""
PENDING_SHARE = 8
"""Part of the shared memory that large requests of one protocol may take: the entry models have a region
each, and a region grows by more than what is asked for."""


def wait_awake(event: threading.Event) -> None:
    """Wait for an event in the main thread, and for signals.

    Python's handlers run when the main thread goes on. The system may give a signal to another thread, and
    the main thread then sleeps on in a wait that has no end.
    """
    while not event.wait(SIGNAL_INTERVAL_S):
        pass


class Sockets:
    """tritonserver's own Unix sockets, in a folder that only the server's own user may enter.

    The supervisor, the models among each other and the gateways come this way, and need no key.
    """

    def __init__(self, folder: Path) -> None:
        self.http = folder / "http"
        self.grpc = folder / "grpc:1"  # tritonserver writes a port behind every address
        self.metrics = folder / "triton_metrics"

    @property
    def arguments(self) -> list[str]:
        """Arguments of tritonserver."""
        addresses = {"http": self.http, "grpc": str(self.grpc).removesuffix(":1"), "metrics": self.metrics}
        return [
            argument
            for name, address in addresses.items()
            for argument in (f"--{name}-address=unix:{address}", f"--{name}-port=1")
        ]


class Server:
    """tritonserver around a rendered model repository::

        with Server(Path("build/model_repo")) as server:
            client = tritonclient.grpc.InferenceServerClient(server.grpc_url)

    Args:
        repository: a rendered model repository.
        settings: ports, timeouts and limits.
        python: the interpreter whose packages the models use.
        probes: by model, instead of the repository's ``probe.json`` files.

    Attributes:
        drained: after :meth:`stop`, whether every request in flight got its answer.
    """

    def __init__(
        self,
        repository: Path,
        settings: ServerSettings | None = None,
        python: Path = Path(sys.executable),
        probes: Mapping[str, ProbeFunction] | None = None,
    ) -> None:
        self.settings = settings or ServerSettings()
        self.drained = True
        self._repository = repository
        self._python = python
        self._probe_key = secrets.token_hex(16)
        if probes is None:
            probes = read_probes(repository, self._probe_key, self.settings.probe_numbers)
        self._probes = probes
        self._ports = ServerPorts.choose(self.settings)
        self._log = LogFile(self.settings.log_file, self.settings.max_log_mib << 20)
        self._run_dir = shared_memory.new_directory()
        self._sockets = Sockets(self._run_dir)
        self._control = Control(f"unix:{self._sockets.http}")
        self._gateways: list[GatewayProcess] = []
        self._process: ServerProcess | None = None
        self._metrics: MetricsEndpoint | None = None
        self._own: SupervisorMetrics | None = None
        self._watch: Watch | None = None
        self._failure: SupervisorError | None = None
        self._stop_requested = threading.Event()
        self._ending = threading.Event()
        self._starting = False
        self._hurry = threading.Event()
        self._models = Models(
            preflight.models_of(repository),
            self._control,
            self._probes,
            f"unix:{self._sockets.grpc}",
            self._inflight_requests,
            lambda: self.session,
            self.settings,
            partial(home_of, repository),
        )

    @property
    def http_url(self) -> str:
        """``host:port`` as Triton's clients take it."""
        return self._ports.url(self._ports.http)

    @property
    def grpc_url(self) -> str:
        return self._ports.url(self._ports.grpc)

    @property
    def metrics_url(self) -> str:
        """Where ``/metrics`` holds everything, Triton's metrics and the models'."""
        return self._ports.url(self._ports.model_metrics)

    @property
    def triton_metrics_url(self) -> str:
        """Where ``/metrics`` holds Triton's own."""
        return self._ports.url(self._ports.metrics)

    @property
    def session(self) -> int:
        """Id of the session that all processes of the running server belong to."""
        assert self._process is not None, "the server is not running"
        return self._process.session

    def inflight(self) -> dict[str, int]:
        """Requests in work by model, as far as models tell (``metrics/request_count.py``)."""
        return {} if self._process is None else self._process.inflight()

    @property
    def reloads(self) -> Counter[str]:
        """How often each model died or got stuck, and came back."""
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
            PreflightError: it could not have run and was not started.
            StartError: it, or one of its models, did not come up; it is stopped again.
            StopRequestedError: :meth:`request_stop` was called.
        """
        started = time.monotonic()
        self._failure = None
        self._ending.clear()
        triton = find_triton(Interpreter.inspect(self._python))
        tell_unused_gpu(self._repository, self._python)
        preflight.check(triton, self._ports, self.settings, self._repository)
        logger.info("%s", triton.origin)
        logger.info("%s serves %s", self._repository, preflight.checkpoint_of(self._repository))
        own = self._count_start()
        variables = {PROBE_KEY_VARIABLE: self._probe_key}
        process = ServerProcess(triton, self._log, self._run_dir, variables, self._on_end)
        self._process, self._starting = process, True
        left_s = max(0.0, started + self.settings.start_timeout_s - time.monotonic())
        limit = threading.Timer(left_s, self._kill, [process])
        try:
            self._bring_up(process, own, limit)
            self._starting = False
            self._require_no_stop()
        except BaseException as error:
            reason = self._why_not_up(process, started)
            self._end(process)
            if isinstance(error, (OSError, RuntimeError)):  # the latter: there is no room for a thread
                reason = reason or StartError(f"the server can't be started: {error}")
            if reason is None or not isinstance(error, Exception):
                raise
            raise reason from error
        finally:
            limit.cancel()
            self._starting = False
        logger.info(
            "all models answer after %.1f s: gRPC %s, HTTP %s, metrics %s",
            time.monotonic() - started,
            self.grpc_url,
            self.http_url,
            self.metrics_url,
        )

    def wait(self) -> None:
        """Return when :meth:`request_stop` is called.

        Raises:
            ServerDiedError, RepairError, WatchError: the server can't be kept up.
        """
        wait_awake(self._ending)
        self.require()

    def require(self) -> None:
        """Raises what :meth:`wait` would."""
        if self._failure is not None:
            raise self._failure

    def request_stop(self) -> None:
        """Make :meth:`start` or :meth:`wait` return; when called again, wait for nothing more."""
        if self._stop_requested.is_set():
            self._hurry.set()
        self._stop_requested.set()
        self._ending.set()
        if self._process is not None and (self._starting or self._hurry.is_set()):
            self._kill(self._process)

    def stop(self) -> None:
        """Let requests in flight finish, then end the server and remove all it leaves behind."""
        if self._process is None:
            return
        # Lost requests wait for nothing but the end of the server, and so does everybody who comes meanwhile;
        # a server that answers nothing ends no request either.
        lost = isinstance(self._failure, (LostRequestsError, ServerSilentError))
        if lost:
            self._process.kill()
        if self._watch is not None:
            self._watch.close()
        self.drained = not lost and self._process.running() and self._drain()
        self._end(self._process, 0.0 if lost else self.settings.exit_timeout_s)
        self._process = None
        logger.info(
            "server stopped, %s", "every request answered" if self.drained else "requests were cut off"
        )

    def _why_not_up(self, process: ServerProcess, started: float) -> SupervisorError | None:
        """Why a call failed while the server started, where that says more than the call's own error."""
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

    def _bring_up(self, process: ServerProcess, own: SupervisorMetrics, limit: threading.Timer) -> None:
        process.start(self._repository, self._arguments())
        limit.start()
        self._metrics = self._serve_metrics(process, own)
        while not self._control.live():
            self._require_no_stop()
            if not process.running():
                raise StartError("tritonserver ended")
            self._stop_requested.wait(LIVE_INTERVAL_S)
        self._open_gateways(process, own)
        self._models.load_all()
        self._models.probe_all()
        self._watch = Watch(process, self._models, self.settings, own, self._fail)

    def _arguments(self) -> list[str]:
        return [
            # Models are loaded one by one over HTTP: that tells progress and each model's own error.
            "--model-control-mode=explicit",
            "--disable-auto-complete-config",
            "--exit-timeout-secs=1",  # requests in flight were waited for before
            "--metrics-config=histogram_latencies=true",
            # A pooled request holds on to its model, which then never finishes unloading.
            "--grpc-infer-allocation-pool-size=0",
            # The gateways say who asks and who has left. They pass on no other header: the key is a probe's.
            f"--http-header-forward-pattern=(?i)({'|'.join(HANDED_ON)})",
            f"--grpc-header-forward-pattern=(?i)({'|'.join((*HANDED_ON, PROBE_HEADER))})",
            *self._sockets.arguments,
        ]

    def _open_gateways(self, process: ServerProcess, own: SupervisorMetrics) -> None:
        for protocol, port, socket in (
            ("grpc", self._ports.grpc, self._sockets.grpc),
            ("http", self._ports.http, self._sockets.http),
        ):
            options = GatewayOptions(
                address=self._ports.listening(port),
                server=str(socket),
                open_models=self._open_models(),
                stages=self._stages(),
                max_request_bytes=self.settings.max_request_mib << 20,
                max_pending_bytes=(shared_memory.free_mib() << 20) // PENDING_SHARE,
                shared=str(self._run_dir / METRICS),
                whole_models=whole_models(preflight.models_of(self._repository)),
                arrival_timeout_s=self.settings.arrival_timeout_s,
                stalled_client_timeout_s=self.settings.stalled_client_timeout_s,
                audit_file=self.settings.audit_file,
                names=self._names(),
            )
            self._gateways.append(
                GatewayProcess(
                    protocol, options, self._python, self._log, process.lifeline, own, self.settings
                )
            )

        for gateway in self._gateways:
            gateway.wait_until_open()

    def _stages(self) -> tuple[str, ...]:
        models = preflight.models_of(self._repository)
        return tuple(name for name in models if name not in self.settings.entry_models)

    def _open_models(self) -> tuple[str, ...]:
        listed = self.settings.open_models
        return tuple(preflight.models_of(self._repository)) if listed == EVERY_MODEL else listed

    def _inflight_requests(self) -> dict[str, int]:
        if self._process is None:
            return {}
        queued = queued_requests(f"unix:{self._sockets.metrics}")
        return {model: count + queued[model] for model, count in self._process.inflight().items()}

    def _count_start(self) -> SupervisorMetrics:
        if self._own is None:
            models = preflight.models_of(self._repository)
            self._own = SupervisorMetrics(self._repository, models, self.settings.log_file.parent)
        else:
            self._own.started_again(TRITONSERVER)
        return self._own

    def _serve_metrics(self, process: ServerProcess, own: SupervisorMetrics) -> MetricsEndpoint:
        def tritons_page() -> str:
            return triton_metrics(f"unix:{self._sockets.metrics}")

        def page() -> str:
            return tritons_page() + process.metrics() + own.page()

        pages = {self._ports.model_metrics: page, self._ports.metrics: tritons_page}
        try:
            return MetricsEndpoint(self._ports.addresses, pages, self._names())
        except OSError as error:
            raise StartError(f"metrics can't be served on {self._ports.host}: {error}") from error

    def _names(self) -> tuple[str, ...] | None:
        """By which clients may call; None for any, where they come from other machines."""
        here = all(is_loopback(address) for address in self._ports.addresses)
        return self.settings.allowed_hosts if here else None

    def _end(self, process: ServerProcess, exit_timeout_s: float = 0.0) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        while self._gateways:
            self._gateways.pop().close()
        process.stop(exit_timeout_s)

    def _kill(self, process: ServerProcess) -> None:
        """End all that waits, or is waited for; what is left of it :meth:`_end` removes."""
        process.kill()
        for gateway in list(self._gateways):
            gateway.kill()

    def _drain(self) -> bool:
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
