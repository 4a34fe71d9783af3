"""A gateway process that is kept running for the life of its server."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from cosyvoice_runtime.gateway.options import LEAVE, GatewayOptions
from cosyvoice_runtime.process.listening import is_loopback
from cosyvoice_runtime.process.named_log import named_thread
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.settings.server import EVERY_MODEL
from cosyvoice_runtime.supervisor.errors import StartError
from cosyvoice_runtime.supervisor.metrics import SupervisorMetrics
from cosyvoice_runtime.supervisor.preflight import ServerPorts

logger = logging.getLogger(__name__)

OPEN, ALIVE = "open", "alive"
QUESTION = "?\n"
PAUSE_S, RETRY_S = 0.2, 2.0
"""The pause before a restart: after a gateway that was open, and after one that could not open."""
OPEN_TIMEOUT_S = 120.0
"""The time in which a restarted gateway is not checked: on a busy machine its imports take long."""
END_TIMEOUT_S = 3.0
PENDING_BYTES = 2**28
"""The most bytes of requests that wait in a gateway for other gateways."""
ANSWER_BYTES = 4096
"""The most bytes that are read of an answer."""


def gateway_options(
    settings: ServerSettings, ports: ServerPorts, port: int, models: tuple[str, ...], ready_file: Path
) -> GatewayOptions:
    """The options that follow from settings; what stands behind the gateway is added to them.

    Args:
        models: all models of the repository.
    """
    return GatewayOptions(
        address=ports.listening(port),
        server="",
        open_models=models if settings.open_models == EVERY_MODEL else settings.open_models,
        max_request_bytes=settings.max_request_mib << 20,
        max_pending_bytes=PENDING_BYTES,
        arrival_timeout_s=settings.arrival_timeout_s,
        stalled_client_timeout_s=settings.stalled_client_timeout_s,
        audit_file=settings.audit_file,
        max_connection_age_s=settings.max_connection_age_s,
        ready_file=str(ready_file),
        names=callable_names(settings, ports),
    )


def callable_names(settings: ServerSettings, ports: ServerPorts) -> tuple[str, ...] | None:
    """The host names that clients may use; None for any, if clients are on other machines."""
    return settings.allowed_hosts if all(map(is_loopback, ports.addresses)) else None


class Spawner(Protocol):
    """Starts processes that do not outlive the supervisor."""

    def spawn(self, command: list[str], **streams: Any) -> subprocess.Popen[str]: ...


class GatewayProcess:
    """Starts a gateway, and restarts it whenever it ends or stops answering.

    It is asked as models are probed, and as often, but by a line through its standard input: its event loop
    answers, whatever clients do. An answer that comes late counts, so that a busy one is left alone.

    Args:
        server: starts its process.
        protocol: ``grpc`` or ``http``.
        counts: counts the restarts.
        settings: settings of the probes.
    """

    def __init__(
        self,
        server: Spawner,
        protocol: str,
        options: GatewayOptions,
        counts: SupervisorMetrics,
        settings: ServerSettings,
    ) -> None:
        self._server = server
        self._protocol = protocol
        self._options = options
        self._restarts = counts.restarts.labels(f"{protocol} gateway")
        self._settings = settings
        self._interval_s = settings.probe_interval_s or None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._leaving = False
        self._process = self._start()
        self._thread = named_thread(self._keep, f"{protocol} gateway")

    def wait_until_open(self) -> None:
        """Return when the gateway accepts clients; from then on it is kept running.

        Raises:
            StartError: the address can't be used, or the gateway was killed.
        """
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        if answer != OPEN:
            where = f"{self._protocol} can't be served at {self._options.address}"
            raise StartError(f"{where}: {answer or 'see the log'}")
        self._thread.start()

    def leave(self) -> None:
        """Tell it, and each that takes its place, that the server is stopping and begins no utterance."""
        with self._lock:
            self._leaving = True
            _say(self._process, LEAVE)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End the gateway, and with it the connections of clients."""
        with self._lock:
            self._closing.set()
        assert self._process.stdin is not None
        with suppress(OSError):  # The pipe was full of an unanswered question.
            self._process.stdin.close()  # The gateway ends when its input closes.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        self._process.kill()
        self._process.wait()
        if self._thread.is_alive():
            self._thread.join()

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "cosyvoice_runtime.gateway", self._protocol]
        process = self._server.spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(self._options.to_json() + "\n")
        process.stdin.write(LEAVE if self._leaving else "")
        process.stdin.flush()
        return process

    def _keep(self) -> None:
        opened = self._watch(self._interval_s)
        while not self._closing.wait(PAUSE_S if opened else RETRY_S):
            code = self._process.wait()
            logger.error(
                "the gateway of %s ended with exit code %d and is started again", self._protocol, code
            )
            self._restarts.inc()
            try:
                with self._lock:
                    if self._closing.is_set():
                        return
                    self._process = self._start()
            except OSError as error:
                logger.error("the gateway of %s can't be started: %s", self._protocol, error)
                opened = False
            else:
                opened = self._watch(OPEN_TIMEOUT_S if self._interval_s else None)

    def _watch(self, pause_s: float | None) -> bool:
        """Return when the gateway has ended; one that does not answer is killed.

        It is asked at least twice: after a pause of all processes, of a container say, time is up at once.

        Args:
            pause_s: time before the first question, until when the gateway only reports that it is open.

        Returns:
            Whether it was open.
        """
        process, silences, opened = self._process, 0, pause_s == self._interval_s
        assert process.stdout is not None
        while silences <= max(2, self._settings.max_failed_probes):
            if not _speaks(process, self._settings.probe_timeout_s if silences else pause_s):
                silences += 1
                _say(process, QUESTION)
                continue
            said = os.read(process.stdout.fileno(), ANSWER_BYTES).decode(errors="replace").split("\n")
            if said == [""]:
                return opened  # The gateway has ended.
            opened = opened or OPEN in said
            for line in {*said} - {"", OPEN, ALIVE}:  # The line says why it can't open again.
                logger.error("the gateway of %s: %s", self._protocol, line)
            silences, pause_s = 0, self._interval_s
        logger.error("the gateway of %s gives no answer and is killed", self._protocol)
        process.kill()
        return opened


def _say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    with suppress(OSError, ValueError):  # The gateway has just ended, or close() has closed its input.
        process.stdin.write(line)
        process.stdin.flush()


def _speaks(process: subprocess.Popen[str], within_s: float | None) -> bool:
    """Whether the gateway writes something in time, or ends, which makes its output readable as well."""
    assert process.stdout is not None
    listening = select.poll()  # select() supports file numbers below 1,024 only.
    listening.register(process.stdout, select.POLLIN)
    return bool(listening.poll(None if within_s is None else 1000 * within_s))
