"""The helper that outlives the supervisor leaves nothing of its server, and holds up no stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from leftovers import leftovers

from cosyvoice_runtime.supervisor.lifeline import Lifeline

TIMEOUT_S = 60.0
SLEEP = ["sleep", "600"]
KILLED_SUPERVISOR = """
import os, signal, sys
from pathlib import Path

from cosyvoice_runtime.supervisor.triton import Interpreter
from cosyvoice_runtime.supervisor.log_file import LogFile
from cosyvoice_runtime.supervisor.process import ServerProcess
from cosyvoice_runtime.supervisor.triton import Triton

spawn = ServerProcess._spawn

def spawn_and_die(*arguments):
    spawn(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

ServerProcess._spawn = spawn_and_die
folder = Path(sys.argv[1])
triton = Triton(folder / "tritonserver", Interpreter.inspect(Path(sys.executable)))
ServerProcess(triton, LogFile(folder / "log", 1 << 20), folder / "run", {}).start(folder, [])
"""


@contextmanager
def session() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps in a session of its own."""
    with subprocess.Popen(SLEEP, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def lifeline(tmp_path: Path) -> Iterator[Lifeline]:
    line = Lifeline(f"cosyvoice_{os.getpid()}_none_", tmp_path / "run")
    yield line
    if not line.input.closed:
        line.release()


def cut(lifeline: Lifeline) -> None:
    """What the end of the supervisor does."""
    lifeline.input.close()
    lifeline._helper.wait(TIMEOUT_S)


def test_all_that_is_told_of_ends_with_the_supervisor(lifeline, tmp_path):
    (tmp_path / "run").mkdir()
    with session() as server, session() as gateway:
        lifeline.hold(server.pid)
        lifeline.hold(gateway.pid)
        os.kill(gateway.pid, signal.SIGSTOP)
        cut(lifeline)
        assert server.wait(TIMEOUT_S) == gateway.wait(TIMEOUT_S) == -signal.SIGKILL
    assert not (tmp_path / "run").exists()


def test_what_had_ended_before_is_left_alone(lifeline):
    with session() as server, session() as gateway:
        lifeline.hold(server.pid)
        lifeline.hold(gateway.pid)
        lifeline.drop(gateway.pid)
        cut(lifeline)
        assert server.wait(TIMEOUT_S) == -signal.SIGKILL
        assert gateway.poll() is None


def test_nothing_ends_after_the_release(lifeline, tmp_path):
    (tmp_path / "run").mkdir()
    with session() as server:
        lifeline.hold(server.pid)
        lifeline.release()
        assert server.poll() is None
    assert (tmp_path / "run").exists()


def test_helper_that_has_ended_is_no_matter(lifeline):
    lifeline._helper.kill()
    lifeline._helper.wait()
    nobody = 1 << 22  # Linux has no greater number
    lifeline.hold(nobody)
    lifeline.drop(nobody)


def test_supervisor_that_is_killed_while_it_starts_a_server_leaves_none(tmp_path, eventually):
    server = tmp_path / "tritonserver"
    server.write_text("#!/bin/sh\nwhile sleep 1; do :; done\n")  # its arguments stay to be seen
    server.chmod(0o700)
    with subprocess.Popen([sys.executable, "-c", KILLED_SUPERVISOR, str(tmp_path)]) as supervisor:
        assert supervisor.wait(TIMEOUT_S) == -signal.SIGKILL
    eventually(lambda: leftovers(supervisor.pid) == [] and not (tmp_path / "run").exists(), TIMEOUT_S)


def test_helper_that_was_stopped_holds_up_no_release(lifeline):
    with session() as server:
        lifeline.hold(server.pid)
        os.kill(lifeline._helper.pid, signal.SIGSTOP)
        releasing = threading.Thread(target=lifeline.release, daemon=True)
        releasing.start()
        releasing.join(TIMEOUT_S)
        held_up = releasing.is_alive()
        lifeline._helper.kill()
        assert server.poll() is None
    assert not held_up
