"""``scripts/demo.py --serve`` comes to its end, and with it what it started, whatever ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --test")

from cosyvoice_runtime.process import processes

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
FRONT = """
import os, signal, socket
signal.signal(signal.SIGINT, signal.default_int_handler)
server = socket.create_server(("127.0.0.1", int(os.environ["COSYVOICE_FRONT__PORT"])))
signal.pause()
"""
PROGRAM = """
import importlib.util, sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("demo", "scripts/demo.py")
demo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(demo)
repository, demo.ROOT = Path(sys.argv.pop()), Path(sys.argv.pop())
demo.BUILD = demo.ROOT
demo.make_repository = lambda checkpoint: repository
demo.speak = lambda *_: None
sys.exit(demo.main())
"""


@pytest.fixture
def start(tmp_path: Path, repository: Path) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """The demo before a real server and a front that only listens, until SIGINT or SIGTERM."""
    (tmp_path / "cosyvoice_front.py").write_text(FRONT)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    started = []

    def start(stdout: int) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "client")])
        demo = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "--serve", str(tmp_path), str(repository)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": paths, "COSYVOICE_FRONT__PORT": str(port)},
            stdout=stdout,
            start_new_session=True,
        )
        started.append(demo)
        return demo

    yield start
    for demo in started:
        for each in processes.living():
            if each.session == demo.pid:
                os.kill(each.pid, signal.SIGKILL)
        demo.wait()


def told_address(demo: subprocess.Popen[bytes]) -> None:
    while b"Ctrl-C ends it" not in (line := demo.stdout.readline()):
        assert line


def sessions_of(demo: subprocess.Popen[bytes]) -> set[int]:
    """Its own, and those of the server and its gateways."""
    sessions = {each.session for each in processes.living() if each.parent == demo.pid}
    assert len(sessions) > 3
    return sessions


def ends(demo: subprocess.Popen[bytes], sessions: Collection[int] = ()) -> int:
    code = demo.wait(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while left := [each for one in (demo.pid, *sessions) for each in processes.session_members(one)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)
    return code


def test_output_that_nobody_reads_ends_it(start):
    read, write = os.pipe()
    os.close(read)
    demo = start(write)
    os.close(write)
    assert ends(demo)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_it_alone_ends_it(start, number):
    demo = start(subprocess.PIPE)
    told_address(demo)
    sessions = sessions_of(demo)
    demo.send_signal(number)
    assert ends(demo, sessions) == 0


def test_server_that_can_not_be_kept_up_ends_it(start):
    demo = start(subprocess.PIPE)
    told_address(demo)
    [server] = [
        each.pid
        for each in processes.living()
        if each.parent == demo.pid and Path(each.command[0]).name == "tritonserver"
    ]
    sessions = sessions_of(demo)
    os.kill(server, signal.SIGKILL)
    assert ends(demo, sessions)
