"""A gateway as a process that is there as long as its server."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.errors import StartError
from cosyvoice_runtime.supervisor.lifeline import Lifeline
from cosyvoice_runtime.supervisor.log_file import LogFile
from cosyvoice_runtime.supervisor.supervisor_metrics import SupervisorMetrics
from cosyvoice_runtime.supervisor.tries import GrowingPause

logger = logging.getLogger(__name__)

OPEN, ALIVE = "open", "alive"
PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
"""Before a gateway that ended is started again: the longer the more often it has not opened."""
RETRY_S = 1.0
"""Before the next try, where the machine had no room for it."""
OPEN_TIMEOUT_S = 120.0
"""For which one that was started again is not asked: on a busy machine its imports take long."""
END_TIMEOUT_S = 3.0
ANSWER_BYTES = 4096
"""More than it says at once."""


class GatewayProcess:
    """Starts a gateway, and starts it again whenever it ends by itself or gives no answer any more.

    It is asked as models are probed, and as often, but by a line through its standard input: its event loop
    answers, whatever clients do. An answer that comes late counts, so that a busy one is left alone.

    Args:
        protocol: ``grpc`` or ``http``.
        python: an interpreter with this package.
        log: what it writes goes there.
        lifeline: ends it when the supervisor is killed: one that hangs doesn't see the end of its input.
        counts: of starts after the first.
        settings: of the probes.
    """

    def __init__(
        self,
        protocol: str,
        options: GatewayOptions,
        python: Path,
        log: LogFile,
        lifeline: Lifeline,
        counts: SupervisorMetrics,
        settings: ServerSettings,
    ) -> None:
        self._command = [str(python), "-m", "cosyvoice_runtime.gateway", protocol]
        self._protocol = protocol
        self._options = options
        self._log = log
        self._lifeline = lifeline
        self._counts = counts
        self._name = f"{protocol} gateway"
        counts.knows(self._name)
        self._settings = settings
        self._interval_s = settings.probe_interval_s or None
        self._closing = threading.Event()
        self._pause = GrowingPause(PAUSE_S, LONGEST_PAUSE_S)
        self._process = self._start()
        self._thread = threading.Thread(target=self._keep, name=self._name, daemon=True)

    def wait_until_open(self) -> None:
        """Return when clients may come; from then on it is kept up.

        Raises:
            StartError: the address can't be used, or it was killed.
        """
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        if answer != OPEN:
            where = f"{self._protocol} can't be served at {self._options.address}"
            raise StartError(f"{where}: {answer or 'see the log'}")
        self._thread.start()

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End it; connections of clients end with it."""
        self._closing.set()
        self._end()
        if self._thread.is_alive():
            self._thread.join()
            self._end()  # one that was being started meanwhile

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open() as log:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert process.stdin is not None
        process.stdin.write(self._options.to_json() + "\n")
        process.stdin.flush()
        self._lifeline.hold(process.pid)
        return process

    def _keep(self) -> None:
        pause_s = self._interval_s
        while not self._closing.is_set():  # what was being started meanwhile is ended by close()
            self._watch(self._process, pause_s)
            code = self._process.wait()
            self._lifeline.drop(self._process.pid)
            if self._closing.wait(self._pause.failed()):
                return
            logger.error(
                "the gateway of %s ended with exit code %d and is started again", self._protocol, code
            )
            self._counts.started_again(self._name)
            self._start_again()
            pause_s = OPEN_TIMEOUT_S if self._interval_s else None

    def _watch(self, process: subprocess.Popen[str], pause_s: float | None) -> None:
        """Return when it has ended; one that does not answer is killed.

        Args:
            pause_s: before the first question. Without being asked it says only that it is open.
        """
        assert process.stdout is not None
        while _speaks(process, pause_s) or self._answers(process):
            said = os.read(process.stdout.fileno(), ANSWER_BYTES).decode(errors="replace").split("\n")
            if said == [""]:
                return  # that was its end
            if OPEN in said:
                self._pause.succeeded()
            for line in {*said} - {"", OPEN, ALIVE}:  # why it can't open again
                logger.error("the gateway of %s: %s", self._protocol, line)
            pause_s = self._interval_s
        logger.error("the gateway of %s gives no answer and is killed", self._protocol)
        process.kill()

    def _answers(self, process: subprocess.Popen[str]) -> bool:
        """Whether it says something, or ends, when it is asked.

        It is asked at least twice: after a pause of all processes, of a container say, time is up at once.
        """
        assert process.stdin is not None
        for _ in range(max(2, self._settings.max_failed_probes)):
            with suppress(OSError, ValueError):  # it has just ended, or close() has closed its input
                process.stdin.write("?\n")
                process.stdin.flush()
            if _speaks(process, self._settings.probe_timeout_s):
                return True
        return False

    def _start_again(self) -> None:
        while not self._closing.is_set():
            try:
                self._process = self._start()
                return
            except OSError as error:
                logger.error("the gateway of %s can't be started: %s", self._protocol, error)
                self._closing.wait(RETRY_S)

    def _end(self) -> None:
        """Without its input it ends by itself."""
        process = self._process
        assert process.stdin is not None
        with suppress(OSError):  # a question that it could not take any more
            process.stdin.close()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._lifeline.drop(process.pid)


def _speaks(process: subprocess.Popen[str], within_s: float | None) -> bool:
    """Whether it says something in time, or ends, which can be read, too."""
    assert process.stdout is not None
    listening = select.poll()  # select() knows no more than 1,024 files
    listening.register(process.stdout, select.POLLIN)
    return bool(listening.poll(None if within_s is None else 1000 * within_s))
