"""A gateway as a process that is there as long as its server."""

from __future__ import annotations

import logging
import select
import subprocess
import threading
from pathlib import Path

from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.supervisor.errors import StartError
from cosyvoice_runtime.supervisor.guarded_call import CHECK_INTERVAL_S, Check
from cosyvoice_runtime.supervisor.log_file import LogFile

logger = logging.getLogger(__name__)

OPEN = "open"
PAUSE_S = 0.2
"""Before a gateway that ended is started again."""
RETRY_S = 1.0
"""Before the next try, where the machine had no room for it."""
END_TIMEOUT_S = 3.0


class GatewayProcess:
    """Starts a gateway, and starts it again whenever it ends by itself.

    Args:
        protocol: ``grpc`` or ``http``.
        python: an interpreter with this package.
        log: what it writes goes there.
    """

    def __init__(self, protocol: str, options: GatewayOptions, python: Path, log: LogFile) -> None:
        self._command = [str(python), "-m", "cosyvoice_runtime.gateway", protocol]
        self._protocol = protocol
        self._options = options
        self._log = log
        self._closing = threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._keep, name=f"{protocol} gateway", daemon=True)

    def wait_until_open(self, check: Check) -> None:
        """Return when clients may come; from then on it is kept up.

        Args:
            check: raises when waiting makes no sense any more.

        Raises:
            StartError: the address can't be used.
        """
        stdout = self._process.stdout
        assert stdout is not None
        while not select.select([stdout], [], [], CHECK_INTERVAL_S)[0]:
            check()
        answer = stdout.readline().strip()
        if answer != OPEN:
            where = f"{self._protocol} can't be served at {self._options.address}"
            raise StartError(f"{where}: {answer or 'see the log'}")
        self._thread.start()

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
        return process

    def _keep(self) -> None:
        while not self._closing.is_set():  # what was being started meanwhile is ended by close()
            code = self._process.wait()
            if self._closing.wait(PAUSE_S):
                return
            logger.error(
                "the gateway of %s ended with exit code %d and is started again", self._protocol, code
            )
            self._start_again()

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
        process.stdin.close()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
