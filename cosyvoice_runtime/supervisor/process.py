"""The tritonserver process and its descendants, sockets and files."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cosyvoice_runtime.metrics import DIRECTORY_VARIABLE
from cosyvoice_runtime.process import processes
from cosyvoice_runtime.supervisor import shared_memory
from cosyvoice_runtime.supervisor.lifeline import RUN_VARIABLE, Lifeline
from cosyvoice_runtime.supervisor.log_file import LogFile
from cosyvoice_runtime.supervisor.triton import Triton

logger = logging.getLogger(__name__)

ERROR_LINE = re.compile(r"^(?:E\d{4} [^\]]*\] |error: |failed to )(.*)", re.MULTILINE)
KILL_WAIT_S = 5.0
METRICS = "metrics"
MODELS = "models"


class ServerProcess:
    """Runs tritonserver in its own session, so that all its processes can be found and killed.

    When tritonserver ends, however that came, its models' processes are killed at once: they hold its
    sockets, so that clients and the supervisor's own calls would wait for answers.

    Args:
        run_dir: folder of the run, private to the user; it is made at the start and removed at the end.
        variables: environment variables of the server and its models, besides those they always need.
        on_end: called with the exit code, negative for a signal, when the server has ended by itself.

    Attributes:
        metrics: directory of the models' metrics.
        ended: set when tritonserver and all processes of its models have ended.
    """

    def __init__(
        self,
        triton: Triton,
        log: LogFile,
        run_dir: Path,
        variables: Mapping[str, str],
        on_end: Callable[[int], None],
    ) -> None:
        self.metrics = run_dir / METRICS
        self.ended = threading.Event()
        self._triton = triton
        self._log = log
        self._run_dir = run_dir
        self._variables = {**variables, DIRECTORY_VARIABLE: str(self.metrics)}
        self._on_end: Callable[[int], None] | None = on_end
        self._end = threading.Thread(target=self._await_end, name="server", daemon=True)
        self._process: subprocess.Popen[str] | None = None
        self._lifeline: Lifeline | None = None

    @property
    def session(self) -> int:
        """The session id, which is the server's process id."""
        assert self._process is not None
        return self._process.pid

    def start(self, repository: Path, arguments: list[str]) -> None:
        """Start tritonserver.

        Args:
            repository: anywhere; the server sees it by a link in ``run_dir``. Its python backend starts each
                model by a shell and does not quote the path, which so has nothing that a shell acts upon.
        """
        self._lifeline = Lifeline(self._run_dir)
        self._run_dir.mkdir(mode=0o700)
        self.metrics.mkdir()
        (self._run_dir / MODELS).symlink_to(repository.absolute())
        command = [
            str(self._triton.binary),
            *self._triton.arguments(self._run_dir),
            f"--model-repository={self._run_dir / MODELS}",
            f"--backend-config=python,shm-region-prefix-name={shared_memory.region_prefix(self._run_dir)}",
            *arguments,
        ]
        self._log.begin()
        environment = self._triton.environment(os.environ) | self._variables
        self._process = self.spawn(command, environment, stdin=subprocess.DEVNULL, stdout=subprocess.STDOUT)
        self._end.start()
        logger.info("tritonserver runs as process %d, its log is %s", self.session, self._log.path)

    def spawn(
        self, command: list[str], environment: Mapping[str, str] = os.environ, **streams: Any
    ) -> subprocess.Popen[str]:
        """Start a process that does not outlive the supervisor; its output goes to the log."""
        with self._log.open() as log:
            if streams["stdout"] == subprocess.STDOUT:
                streams["stdout"] = log
            return subprocess.Popen(
                command,
                env={**environment, RUN_VARIABLE: str(self._run_dir)},
                stderr=log,
                text=True,
                start_new_session=True,
                **streams,
            )

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the server, which ends all calls to it."""
        if self._process is not None:
            self._process.kill()

    def stubs(self) -> dict[str, set[int]]:
        """The process ids of each model's living processes."""
        found = defaultdict[str, set[int]](set)
        for each in processes.session_members(self.session):
            found[each.model or ""].add(each.pid)
        return found

    def kill_stubs(self, model: str) -> None:
        """Kill all present processes of a model, stuck ones as well, but none that start later."""
        for pid in self.stubs()[model]:
            kill(pid)

    def errors(self) -> list[str]:
        """The error messages of this run in the log."""
        return ERROR_LINE.findall(self._log.text())

    def stop(self, exit_timeout_s: float) -> None:
        """Stop the server, kill what does not end in time, and remove all files of the run."""
        self._on_end = None
        if self._process is not None:
            if exit_timeout_s and self.running():
                self._terminate(exit_timeout_s)
            self._process.kill()
        if self._end.ident is not None:
            self._end.join(2 * KILL_WAIT_S)
        self._log.end()
        for left in shared_memory.regions(shared_memory.region_prefix(self._run_dir)):
            left.unlink(missing_ok=True)
        shutil.rmtree(self._run_dir, ignore_errors=True)
        if self._lifeline is not None:
            self._lifeline.release()

    def _terminate(self, timeout_s: float) -> None:
        assert self._process is not None
        self._process.terminate()
        if not self.ended.wait(timeout_s):
            logger.warning("tritonserver did not end within %.1f s and is killed", timeout_s)

    def _await_end(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        self._kill_models()
        self.ended.set()
        if self._on_end is not None:
            self._on_end(code)

    def _kill_models(self) -> None:
        deadline = time.monotonic() + KILL_WAIT_S
        while members := processes.session_members(self.session):  # The models' processes ignore SIGTERM.
            for member in members:
                kill(member.pid)
            if time.monotonic() > deadline:
                logger.error("processes %s can't be killed", [member.pid for member in members])
                return
            time.sleep(0.01)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # The process has ended by itself.
        os.kill(pid, signal.SIGKILL)
