"""The helper that outlives the supervisor leaves nothing of its server, and holds up no stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosyvoice_runtime.supervisor.process import RUN_VARIABLE, SHARED_MEMORY, new_run_directory, region_prefix

TIMEOUT_S = 60.0
SUPERVISOR = """
import os, signal, subprocess, sys
from pathlib import Path
from cosyvoice_runtime.supervisor.process import RUN_VARIABLE, Lifeline

lifeline = Lifeline(Path(sys.argv[1]))
apart = dict(env={**os.environ, RUN_VARIABLE: sys.argv[1]}, stdout=subprocess.DEVNULL, start_new_session=True)
server = subprocess.Popen(["sleep", "600"], **apart)
gateway = subprocess.Popen(["sh", "-c", "kill -s STOP $$"], **apart)
print(server.pid, gateway.pid, flush=True)
if sys.argv[2] == "is killed":
    os.kill(os.getpid(), signal.SIGKILL)
lifeline.release()
"""


@pytest.fixture
def run_dir() -> Iterator[Path]:
    folder = new_run_directory()
    folder.mkdir()
    yield folder
    if folder.exists():
        folder.rmdir()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of another run, whose folder's name begins in the same way."""
    variables = {**os.environ, RUN_VARIABLE: "/dev/shm/cosyvoice-server-"}
    with subprocess.Popen(["sleep", "600"], env=variables) as process:
        yield process
        process.kill()


def supervise(run_dir: Path, end: str) -> list[int]:
    """Processes of a supervisor that has come to its end."""
    command = [sys.executable, "-c", SUPERVISOR, str(run_dir), end]
    return [*map(int, subprocess.run(command, stdout=subprocess.PIPE, timeout=TIMEOUT_S).stdout.split())]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_all_processes_and_files_of_a_run_end_with_the_supervisor(run_dir, stranger, eventually):
    region = SHARED_MEMORY / f"{region_prefix(run_dir)}0"
    region.touch()
    pids = supervise(run_dir, "is killed")
    assert len(pids) == 2
    eventually(lambda: not any(map(alive, pids)) and not run_dir.exists() and not region.exists())
    assert stranger.poll() is None


def test_a_process_that_was_just_being_started_ends_as_well(run_dir, eventually):
    """Until its program runs it has its parent's environment, and what it writes comes after the others."""
    region = SHARED_MEMORY / f"{region_prefix(run_dir)}0"
    script = 'while [ -e "$1" ]; do sleep 0.05; done; touch "$2"; export "$3=$1"; exec sleep 600'
    with subprocess.Popen(["sh", "-c", script, "sh", str(run_dir), str(region), RUN_VARIABLE]) as late:
        try:
            supervise(run_dir, "is killed")
            assert late.wait(TIMEOUT_S) == -signal.SIGKILL
        finally:
            late.kill()
    eventually(lambda: not region.exists() and not run_dir.exists())


def test_nothing_ends_after_an_orderly_end(run_dir):
    pids = supervise(run_dir, "ends")
    assert all(map(alive, pids))
    assert run_dir.exists()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
