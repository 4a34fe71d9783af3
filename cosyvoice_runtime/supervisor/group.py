"""Several servers of one machine behind one address."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gateway.health_watch import SERVING
from cosyvoice_runtime.gateway.policy import HEALTH_CHECK
from cosyvoice_runtime.process.listening import DIRECT, local_url
from cosyvoice_runtime.process.named_log import named, named_thread
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import preflight
from cosyvoice_runtime.supervisor.calls import ANSWER_TIMEOUT_S
from cosyvoice_runtime.supervisor.errors import (
    PreflightError,
    StartError,
    StopRequestedError,
    SupervisorError,
    WatchError,
)
from cosyvoice_runtime.supervisor.gateway_process import GatewayProcess, callable_names, gateway_options
from cosyvoice_runtime.supervisor.keep_up import keep_up
from cosyvoice_runtime.supervisor.memory import memory_problems
from cosyvoice_runtime.supervisor.metrics import MetricsEndpoint, SupervisorMetrics
from cosyvoice_runtime.supervisor.places import ServerPlace
from cosyvoice_runtime.supervisor.preflight import ServerPorts
from cosyvoice_runtime.supervisor.process import LogFile, Run, new_run_directory
from cosyvoice_runtime.supervisor.server import Server

if TYPE_CHECKING:
    from typing import Self

logger = logging.getLogger(__name__)

PORT_STEP = 100
"""The first server's ports are so much higher than those of the settings, the second one's twice as much."""
PORTS = ("http", "grpc", "metrics", "model_metrics")
STALLED_SHARE = 2
"""How many times longer a server waits for a gateway that takes nothing, which waits for a client itself."""
SERVING_TIMEOUT_S = 60.0
"""The longest wait for the gateways to find servers that are up."""
LOOK_INTERVAL_S = 0.2
"""The longest delay of a signal."""


class ServerGroup:
    """Servers of one repository, each complete and with ports of its own, behind the ports of the settings::

        with ServerGroup(Path("build/model_repo"), settings, places) as group:
            client = tritonclient.grpc.InferenceServerClient(group.grpc_url)

    The gateways at the ports of the settings ask one server after the other, and another one where a server
    refuses for now. A server that dies is started again while the others go on.

    Args:
        repository: a rendered model repository.
        settings: of the address and, but for ports and log, of each server.
        places: where each server runs.

    Attributes:
        drained: after :meth:`stop`, whether every request in flight got its answer.
        http_url, grpc_url: the ``host:port`` for Triton's clients.
        metrics_url: the ``host:port`` of ``/metrics`` of the gateways before the servers.
        servers: by :attr:`ServerPlace.name`.

    Raises:
        InvalidInput: a server's port would be above the last one.
    """

    def __init__(self, repository: Path, settings: ServerSettings, places: Sequence[ServerPlace]) -> None:
        self.settings = settings
        self.drained = True
        self._repository = repository
        self._names = tuple(preflight.models_of(repository))
        self._ports = ports = ServerPorts.choose(settings)
        self.http_url, self.grpc_url = ports.url(ports.http), ports.url(ports.grpc)
        self.metrics_url = ports.url(ports.model_metrics)
        self._run = Run(new_run_directory(), LogFile(settings.log_file, settings.max_log_mib << 20))
        self._ready_file = self._run.folder / "ready"
        self._changed = threading.Event()
        self._stop_requested = threading.Event()
        self._stopped = False
        taken = {ports.http, ports.grpc, ports.metrics, ports.model_metrics}
        self._members: list[_Member] = []
        for number, place in enumerate(places, 1):
            own = _settings_of(settings, number, taken)
            server = Server(repository, own, place=place)
            self._members.append(_Member(place.name, server, self._changed.set))
        self.servers = {member.name: member.server for member in self._members}
        self._gateways: list[GatewayProcess] = []
        self._metrics: MetricsEndpoint | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all servers side by side and return when every model of each has answered its probe.

        Raises:
            PreflightError: the servers could not have run and were not started.
            StartError: one of them did not come up; all are stopped again.
            StopRequestedError: :meth:`request_stop` was called.
        """
        started = time.monotonic()
        self._check()
        try:
            self._run.begin()
            self._open()
            for member in self._members:
                member.start()
            for gateway in self._gateways:
                gateway.wait_until_open()
            self._wait_until(self._all_are_up_or_one_has_failed)
            self._require_all_up()
            self._ready_file.touch()
            self._require_serving()
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError):
                raise StartError(f"the servers can't be started: {error}") from error
            raise
        pages = ", ".join(member.server.metrics_url for member in self._members)
        text = "all %d servers answer after %.1f s: gRPC %s, HTTP %s, metrics of each %s"
        seconds = time.monotonic() - started
        logger.info(text, len(self._members), seconds, self.grpc_url, self.http_url, pages)

    def wait(self) -> None:
        """Return when :meth:`request_stop` is called; an error tells that no server can be kept up."""
        self._wait_until(lambda: all(member.failure for member in self._members))
        self.require()

    def require(self) -> None:
        """Raise the errors of :meth:`wait` without waiting."""
        failures = [member.failure for member in self._members if member.failure is not None]
        if len(failures) == len(self._members) and not self._stop_requested.is_set():
            raise failures[-1]

    def request_stop(self) -> None:
        """Make :meth:`start` or :meth:`wait` return; a second call ends all waiting."""
        self._stop_requested.set()
        for gateway in self._gateways:
            gateway.leave()
        for member in self._members:
            member.server.request_stop()
        self._changed.set()

    def stop(self) -> None:
        """Let requests in flight finish, then end all servers and remove all that they leave behind."""
        if self._stopped:
            return
        self._stopped = True
        if not self._stop_requested.is_set():
            self.request_stop()
        for member in self._members:
            member.join()
        self.drained = all(member.server.drained for member in self._members if not member.left_out)
        if self._metrics is not None:
            self._metrics.close()
        while self._gateways:
            self._gateways.pop().close()
        self._run.end()

    def _check(self) -> None:
        checkpoint = preflight.checkpoint_of(self._repository)
        problems = [*self._ports.problems, *memory_problems(len(self._members), checkpoint)]
        problems += preflight.not_writable("server.log_file", self.settings.log_file.absolute().parent)
        if problems:
            raise PreflightError(problems)

    def _open(self) -> None:
        """Serve the page of metrics, and start the gateways: not ready before the servers are."""
        counts = SupervisorMetrics(self._repository, (), self.settings.log_file.parent)
        names = callable_names(self.settings, self._ports)
        pages = {self._ports.model_metrics: counts.page}
        self._metrics = MetricsEndpoint(self._ports.addresses, pages, names)
        host = self._ports.addresses[0]  # By name, gRPC would take one server only.
        own = [server.settings for server in self.servers.values()]
        behind = {
            "grpc": (self._ports.grpc, [local_url(host, each.grpc_port) for each in own]),
            "http": (self._ports.http, [local_url(host, each.http_port) for each in own]),
        }
        for protocol, (port, urls) in behind.items():
            options = gateway_options(self.settings, self._ports, port, self._names, self._ready_file)
            options = replace(options, gateways=tuple(urls))
            self._gateways.append(GatewayProcess(self._run, protocol, options, counts, self.settings))

    def _require_serving(self) -> None:
        """Return when the address is serving or the group is told to stop; a StartError if it is late."""
        deadline = time.monotonic() + SERVING_TIMEOUT_S
        obstacle: str | None = None

        def is_over() -> bool:
            nonlocal obstacle
            obstacle = self._obstacle()
            return obstacle is None or time.monotonic() > deadline

        self._wait_until(is_over)
        if obstacle is not None and not self._stop_requested.is_set():
            late = f"all servers are up, but not {self.grpc_url} before them within {SERVING_TIMEOUT_S:g} s"
            raise StartError(f"{late}: {obstacle}")

    def _obstacle(self) -> str | None:
        """The reason why the address is not serving, as where no server was found; None if it is."""
        with grpc.insecure_channel(self.grpc_url, [DIRECT, ("grpc.use_local_subchannel_pool", 1)]) as channel:
            try:
                state = channel.unary_unary(HEALTH_CHECK)(b"", timeout=ANSWER_TIMEOUT_S)
            except grpc.RpcError as error:
                return f"{error.code().name}: {error.details()}"
        return None if state == SERVING else "it says that it is not serving"

    def _require_all_up(self) -> None:
        if self._stop_requested.is_set():
            raise StopRequestedError("told to stop while starting")
        for member in self._members:
            if member.failure is not None:
                logger.error("%s did not come up, so all are stopped", member.name)
                raise member.failure

    def _all_are_up_or_one_has_failed(self) -> bool:
        return all(member.up for member in self._members) or any(member.failure for member in self._members)

    def _wait_until(self, holds: Callable[[], bool]) -> None:
        """Return when something holds or the group is told to stop.

        The main thread runs signal handlers meanwhile.
        """
        while not (holds() or self._stop_requested.is_set()):
            self._changed.wait(LOOK_INTERVAL_S)
            self._changed.clear()


class _Member:
    """A server of the group, kept up by a thread of its own.

    Attributes:
        up: whether every model has answered its probe once.
        failure: why the server can't be kept up.
    """

    def __init__(self, name: str, server: Server, changed: Callable[[], None]) -> None:
        self.name = name
        self.server = server
        self.up = False
        self.failure: SupervisorError | None = None
        self._changed = changed
        with named(name):
            self._thread = named_thread(self._keep, name)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Return when the server has been stopped."""
        while self._thread.is_alive():  # The main thread runs signal handlers meanwhile.
            self._thread.join(LOOK_INTERVAL_S)

    def _keep(self) -> None:
        try:
            keep_up(self.server, self._note_up)
        except SupervisorError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("the supervisor of this server failed")
            self._fail(WatchError(f"{self.name}: its supervisor failed: {error!r}"))
        self._changed()

    def _note_up(self) -> None:
        self.up = True
        self._changed()

    @property
    def left_out(self) -> bool:
        """Whether it was up once, and can't be kept up."""
        return self.up and self.failure is not None and not isinstance(self.failure, StopRequestedError)

    def _fail(self, error: SupervisorError) -> None:
        self.failure = error
        if self.left_out:
            logger.error("it is left out, and other servers go on: %s", error)


def _settings_of(settings: ServerSettings, number: int, taken: set[int]) -> ServerSettings:
    """The settings of one server, whose ports are added to ``taken``."""
    log = settings.log_file
    own = settings.replace(
        **{f"{name}_port": _port(settings, name, number) for name in PORTS},
        log_file=log.with_name(f"{log.stem}.server{number}{log.suffix}"),
        audit_file="",  # The gateway before all servers writes it.
        stalled_client_timeout_s=min(3600.0, STALLED_SHARE * settings.stalled_client_timeout_s),
    )
    ports = ServerPorts.choose(own, taken)
    chosen = {f"{name}_port": getattr(ports, name) for name in PORTS}
    taken.update(chosen.values())
    return own.replace(**chosen)


def _port(settings: ServerSettings, name: str, number: int) -> int:
    given: int = getattr(settings, f"{name}_port")
    port = given and given + PORT_STEP * number
    if port > 65535:
        limit = f"at most {65535 - PORT_STEP * number}, because server {number} has a port {PORT_STEP} higher"
        raise InvalidInput(f"server.{name}_port", given, limit)
    return port
