"""The tritonserver process with everything it leaves behind."""

from __future__ import annotations

import logging
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from cosyvoice_runtime.metrics import DIRECTORY_VARIABLE
from cosyvoice_runtime.metrics.page import (
    read_request_counts,
    render_page,
    sum_of_counters,
    take_lost_counts,
)
from cosyvoice_runtime.process import processes
from cosyvoice_runtime.supervisor import shared_memory
from cosyvoice_runtime.supervisor.lifeline import Lifeline
from cosyvoice_runtime.supervisor.log_file import LogFile
from cosyvoice_runtime.supervisor.triton import Triton

logger = logging.getLogger(__name__)

ERROR_LINE = re.compile(r"^(?:E\d{4} [^\]]*\] |error: |failed to )(.*)", re.MULTILINE)
KILL_WAIT_S = 5.0
DEATH_INTERVAL_S = 0.1
METRICS = "metrics"
MODELS = "models"


class ServerProcess:
    """Runs tritonserver in a session of its own, so that all its processes can be found and killed.

    When tritonserver ends, however that came, its models' processes are killed at once: they hold its
    sockets, so that clients and the supervisor's own calls would wait for answers.

    Args:
        run_dir: made for it, closed to other users, and removed when it has ended.
        variables: environment of the server and its models, beside what they need to run at all.
        on_end: called with the exit code, negative for a signal, when it has ended by itself.
    """

    def __init__(
        self,
        triton: Triton,
        log: LogFile,
        run_dir: Path,
        variables: Mapping[str, str],
        on_end: Callable[[int], None] | None = None,
    ) -> None:
        self.ended = threading.Event()
        self._triton = triton
        self._variables = dict(variables)
        self._on_end = on_end
        self._end = threading.Thread(target=self._await_end, name="server", daemon=True)
        self._log = log
        self._prefix = shared_memory.new_prefix()
        self._run_dir = run_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: Lifeline | None = None

    @property
    def session(self) -> int:
        """Session id, which is the server's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def lifeline(self) -> Lifeline:
        """Holds what must not outlive the supervisor; there while the server runs."""
        assert self._lifeline is not None
        return self._lifeline

    def start(self, repository: Path, arguments: list[str]) -> None:
        """
        Args:
            repository: anywhere; the server sees it by a link in ``run_dir``. Its python backend starts each
                model by a shell and does not quote the path, which so has nothing that a shell acts upon.
        """
        self._lifeline = Lifeline(self._prefix, self._run_dir)
        self._run_dir.mkdir(mode=0o700)
        (self._run_dir / MODELS).symlink_to(repository.absolute())
        command = [
            str(self._triton.binary),
            *self._triton.arguments(self._run_dir),
            f"--model-repository={self._run_dir / MODELS}",
            f"--backend-config=python,shm-region-prefix-name={self._prefix}",
            *arguments,
        ]
        self._log.begin()
        with self._log.open() as log:
            self._process = self._spawn(command, log, self._run_dir)
        self._lifeline.hold(self.session)
        self._end.start()
        logger.info("tritonserver runs as process %d, its log is %s", self.session, self._log.path)

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it at once, and so every call of it."""
        if self._process is not None:
            self._process.kill()

    def stubs(self, model: str) -> list[int]:
        """Process ids of a model's living processes."""
        return [each.pid for each in self._members() if each.model == model]

    def await_death(self, model: str) -> None:
        """Return when a process of a model has ended, at once where it has none."""
        pids = self.stubs(model)
        try:
            with ExitStack() as files:
                ended = select.poll()
                for pid in pids:
                    process = os.pidfd_open(pid)
                    files.callback(os.close, process)
                    ended.register(process, select.POLLIN)
                if pids:
                    ended.poll()
        except ProcessLookupError:  # it has just ended
            return
        except OSError:  # a kernel or a sandbox without pidfd
            while all(map(processes.is_alive, pids)):
                time.sleep(DEATH_INTERVAL_S)

    def kill_stubs(self, model: str) -> None:
        """End the processes of a model, stuck ones as well, but none that is started from now on."""
        for pid in self.stubs(model):
            _kill(pid)

    def inflight(self) -> dict[str, int]:
        """Requests in work, of each model that tells."""
        return read_request_counts(self._run_dir / METRICS)

    def take_lost(self) -> dict[str, int]:
        """Requests that processes of models had in work when they died since the last call, by model."""
        return take_lost_counts(self._run_dir / METRICS)

    def work_done(self, model: str) -> float:
        """What a model has counted so far, of all that it counts; a model that works counts more."""
        return sum_of_counters(self._run_dir / METRICS, model)

    def metrics(self) -> str:
        """What the models tell of themselves, as a page for Prometheus."""
        return render_page(self._run_dir / METRICS)

    def errors(self) -> list[str]:
        """Error messages in the log of this run."""
        return ERROR_LINE.findall(self._log.text())

    def stop(self, exit_timeout_s: float) -> None:
        """End the server, kill what does not end in time, and remove what it leaves."""
        self._on_end = None
        if exit_timeout_s and self.running():
            self._terminate(exit_timeout_s)
        if self._process is not None:
            self._kill_all()  # those of the models ignore SIGTERM
            with suppress(subprocess.TimeoutExpired):  # of which `_kill_all` has told
                self._process.wait(KILL_WAIT_S)
        if self._end.ident is not None:
            self._end.join(KILL_WAIT_S)
        self._log.end()
        swept = shared_memory.sweep(self._prefix)
        if swept:
            logger.debug("removed %d shared memory regions", swept)
        if self._lifeline is not None:
            self._lifeline.release()
            self._lifeline = None
        shutil.rmtree(self._run_dir, ignore_errors=True)

    def _spawn(self, command: list[str], log: IO[bytes], run_dir: Path) -> subprocess.Popen[bytes]:
        (run_dir / METRICS).mkdir()
        environment = self._triton.environment(os.environ)
        return subprocess.Popen(
            self.lifeline.spawning(command),
            env=environment | self._variables | {DIRECTORY_VARIABLE: str(run_dir / METRICS)},
            stdin=self.lifeline.input,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _await_end(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        self._kill_all()
        self.ended.set()
        if self._on_end is not None:
            self._on_end(code)

    def _terminate(self, timeout_s: float) -> None:
        assert self._process is not None
        self._process.terminate()
        if not self.ended.wait(timeout_s):
            logger.warning("tritonserver did not end within %.1f s and is killed", timeout_s)

    def _members(self) -> list[processes.Process]:
        return processes.session_members(self.session)

    def _kill_all(self) -> None:
        deadline = time.monotonic() + KILL_WAIT_S
        while members := self._members():
            for member in members:
                _kill(member.pid)
            if time.monotonic() > deadline:
                logger.error("processes %s can't be killed", [member.pid for member in members])
                return
            time.sleep(0.01)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, signal.SIGKILL)
