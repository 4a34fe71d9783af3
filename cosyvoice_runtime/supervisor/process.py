"""The tritonserver process and its descendants, log file and shared memory."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from cosyvoice_runtime.metrics import DIRECTORY_VARIABLE
from cosyvoice_runtime.process import processes
from cosyvoice_runtime.process.named_log import named_thread
from cosyvoice_runtime.supervisor.preflight import SHARED_MEMORY, Triton

logger = logging.getLogger(__name__)

RUN_VARIABLE = "SUPERVISOR_RUN"
"""The environment variable with the run's folder, which each process of the run has."""
LIFELINE = """
while read -r told; do [ "$told" != released ] || exit 0; done
quiet=0
while [ "$quiet" -lt 40 ]; do
    quiet=$((quiet + 1))
    pids=$(grep -lsF -- "$1" /proc/[0-9]*/environ | cut -d / -f 3)
    [ -z "$pids" ] || quiet=0
    [ -z "$pids" ] || kill -s KILL -- $pids
    rm -rf -- "$1" "$2"*
    sleep 0.05
done
"""
"""The helper reads until the end of a pipe whose other end only the supervisor holds.

It looks for two more seconds after the last process: one that is just being started has no environment yet,
and one whose main thread has ended shows none while its other threads finish what they write.
"""
RELEASE_TIMEOUT_S = 3.0
"""The longest wait for the helper's end, because a signal may have stopped it."""
INTERVAL_S = 1.0
"""The time between two checks of the log's size."""
PAUSE_S = 60.0
"""The pause before the next try, when there was no room for a copy of the log."""
ERROR_LINE = re.compile(r"^(?:E\d{4} [^\]]*\] |error: |failed to )(.*)", re.MULTILINE)
KILL_WAIT_S = 5.0


def new_run_directory() -> Path:
    """A new name for the folder of a server's run; the folder is not created.

    Temporary folders are cleaned of what is old, and a server runs for months. Shared memory is not cleaned,
    every server needs it, and its path holds nothing that a shell would act upon.
    """
    return SHARED_MEMORY / f"cosyvoice-server-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def region_prefix(run_dir: Path) -> str:
    """The name prefix of a run's regions of shared memory, unique to the run."""
    return f"{run_dir.name.replace('-server', '').replace('-', '_')}_"


def remove_files(run_dir: Path) -> None:
    """Remove a run's folder and its regions of shared memory, whose processes have ended."""
    for region in SHARED_MEMORY.glob(f"{region_prefix(run_dir)}*"):
        region.unlink(missing_ok=True)
    shutil.rmtree(run_dir, ignore_errors=True)


class Lifeline:
    """A helper process that kills all processes of a run and removes its folder when the supervisor is
    killed."""

    def __init__(self, run_dir: Path) -> None:
        self._helper = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                LIFELINE,
                "lifeline",
                str(run_dir),
                str(SHARED_MEMORY / region_prefix(run_dir)),
            ],
            stdin=subprocess.PIPE,
            text=True,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """End the helper without effect, because the run ended in an orderly way."""
        try:
            self._helper.communicate("released\n", RELEASE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._helper.kill()
            self._helper.wait()


class LogFile:
    """A file that is copied to ``NAME.1``, which is overwritten, and emptied when it is full.

    The processes hold it open, tritonserver for months, so it can't be replaced by another one. They append,
    and so go on at its new end; what they write just between copy and cut is lost.

    Args:
        limit: bytes that make it full; both files together take twice as much, and what comes in a second.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self._limit = limit
        self._start = 0
        self._closed = threading.Event()

    def open(self) -> IO[bytes]:
        """Open the file for appending, for a process."""
        return self.path.open("ab")

    def begin(self) -> None:
        """Note the start of a run, and watch the file until :meth:`end`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.open() as log:
            self._start = log.tell()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, args=[self._closed], name="log", daemon=True).start()

    def end(self) -> None:
        """Stop watching the file."""
        self._closed.set()

    def text(self) -> str:
        """The output of this run, as far as it is in the present file."""
        return self.path.read_bytes()[self._start :].decode(errors="replace")

    def turn_over(self) -> None:
        """Copy a full file, then empty it; an OSError if there is no room for the copy."""
        if self.path.stat().st_size >= self._limit:
            shutil.copyfile(self.path, self.path.with_name(f"{self.path.name}.1"))
            os.truncate(self.path, 0)
            self._start = 0

    def _watch(self, closed: threading.Event) -> None:
        pause_s = INTERVAL_S
        while not closed.wait(pause_s):
            try:
                self.turn_over()
                pause_s = INTERVAL_S
            except OSError as error:
                logger.error("%s can't be kept to its size: %s", self.path, error)
                pause_s = PAUSE_S


class Run:
    """A folder and a log for processes that do not outlive the supervisor.

    Args:
        folder: private to the user; it is made at the start and removed at the end.
    """

    def __init__(self, folder: Path, log: LogFile) -> None:
        self.folder = folder
        self.log = log
        self._lifeline: Lifeline | None = None

    def begin(self) -> None:
        self._lifeline = Lifeline(self.folder)
        self.folder.mkdir(mode=0o700)
        self.log.begin()

    def spawn(
        self, command: list[str], environment: Mapping[str, str] = os.environ, **streams: Any
    ) -> subprocess.Popen[str]:
        """Start a process that does not outlive the supervisor; its output goes to the log."""
        with self.log.open() as log:
            if streams["stdout"] == subprocess.STDOUT:
                streams["stdout"] = log
            return subprocess.Popen(
                command,
                env={**environment, RUN_VARIABLE: str(self.folder)},
                stderr=log,
                text=True,
                start_new_session=True,
                **streams,
            )

    def end(self) -> None:
        """Remove all files of the run, whose processes have ended."""
        self.log.end()
        remove_files(self.folder)
        if self._lifeline is not None:
            self._lifeline.release()


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
        self.metrics = run_dir / "metrics"
        self.ended = threading.Event()
        self._triton = triton
        self._run = Run(run_dir, log)
        self._variables = {**variables, DIRECTORY_VARIABLE: str(self.metrics)}
        self._on_end: Callable[[int], None] | None = on_end
        self._end = named_thread(self._await_end, "server")
        self._process: subprocess.Popen[str] | None = None

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
        self._run.begin()
        self.metrics.mkdir()
        models = self._run.folder / "models"
        models.symlink_to(repository.absolute())
        command = [
            str(self._triton.binary),
            *self._triton.arguments(self._run.folder),
            f"--model-repository={models}",
            f"--backend-config=python,shm-region-prefix-name={region_prefix(self._run.folder)}",
            *arguments,
        ]
        environment = self._triton.environment(os.environ) | self._variables
        self._process = self.spawn(command, environment, stdin=subprocess.DEVNULL, stdout=subprocess.STDOUT)
        self._end.start()
        logger.info("tritonserver runs as process %d, its log is %s", self.session, self._run.log.path)

    def spawn(
        self, command: list[str], environment: Mapping[str, str] = os.environ, **streams: Any
    ) -> subprocess.Popen[str]:
        """Start a process of this run, as :meth:`Run.spawn` does."""
        return self._run.spawn(command, environment, **streams)

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
        return ERROR_LINE.findall(self._run.log.text())

    def stop(self, exit_timeout_s: float) -> None:
        """Stop the server, kill what does not end in time, and remove all files of the run."""
        self._on_end = None
        if self._process is not None:
            if exit_timeout_s and self.running():
                self._process.terminate()
                if not self.ended.wait(exit_timeout_s):
                    logger.warning("tritonserver did not end within %.1f s and is killed", exit_timeout_s)
            self._process.kill()
        if self._end.ident is not None:
            self._end.join(2 * KILL_WAIT_S)
        self._run.end()

    def _await_end(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        deadline = time.monotonic() + KILL_WAIT_S
        while members := processes.session_members(self.session):  # The models' processes ignore SIGTERM.
            for member in members:
                kill(member.pid)
            if time.monotonic() > deadline:
                logger.error("processes %s can't be killed", [member.pid for member in members])
                break
            time.sleep(0.01)
        self.ended.set()
        if self._on_end is not None:
            self._on_end(code)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # The process has ended by itself.
        os.kill(pid, signal.SIGKILL)
