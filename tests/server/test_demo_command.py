"""``scripts/demo.py`` speaks English with the checkpoint and the recording that come along, and serves it.

It runs where the environment names proxies that answer nobody, in a home of its own, under strace.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
import wave
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")
pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --test")

from cosyvoice_runtime.process import processes
from refusing_proxy import refusing_proxy
from system_calls import addresses, traced, written

ROOT = Path(__file__).parents[2]
SECONDS = (2.4, 5.0)
"""The synthesizer whose voice it is takes 3.3 s."""
TIMEOUT_S = 300.0
LAST_LINE = "Ctrl-C ends it"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def speech(url: str, text: str) -> bytes:
    body = {"model": "tts-1", "voice": "alloy", "input": text, "response_format": "pcm"}
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/audio/speech", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return answer.read()


@dataclass(frozen=True)
class Demo:
    """A run of the demo, from its start to Ctrl-C.

    Attributes:
        home, out, calls: home of its user; where it writes; what strace saw.
        told, log: standard output and error.
        spoken: bytes that its front answered with.
        left: processes that are there when it has ended.
    """

    home: Path
    out: Path
    calls: Path
    told: str
    log: str
    status: int
    spoken: int
    left: list[processes.Process]
    asked_of_proxy: list[str]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    home, out = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("demo")
    calls, log = tmp_path_factory.mktemp("calls") / "strace", tmp_path_factory.mktemp("log") / "log"
    command = [sys.executable, "scripts/demo.py", "--output", str(out / "demo.wav"), "--serve"]
    own = {"COSYVOICE_FRONT__PORT": str(free_port()), "HOME": str(home), "TMPDIR": str(out)}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    with (
        refusing_proxy() as proxy,
        log.open("w") as errors,
        subprocess.Popen(
            traced(command, calls),
            cwd=ROOT,
            env=kept | proxy.variables | own,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        told = ""
        while LAST_LINE not in told:
            line = process.stdout.readline()
            assert line, log.read_text()
            told += line
        [url] = re.findall(r"page to speak from: (\S+)/\n", told)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(url, timeout=TIMEOUT_S) as page:
            assert b"<html" in page.read()
        spoken = len(speech(url, "Good morning."))
        family = {process.pid}
        for each in sorted(processes.living(), key=lambda one: one.pid):
            family |= {each.pid} if each.parent in family else set()
        sessions = {each.session for each in processes.living() if each.pid in family}
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        status = process.wait(TIMEOUT_S)
    assert len(sessions) > 1, "its own, and those of what it started"
    left = [each for session in sessions for each in processes.session_members(session)]
    return Demo(home, out, calls, told, log.read_text(), status, spoken, left, proxy.asked)


def test_the_demo_speaks_serves_and_leaves_nothing_behind(demo: Demo) -> None:
    assert (demo.status, demo.left) == (0, [])
    assert demo.spoken > 24_000
    assert "server stopped, every request answered" in demo.log
    assert "Traceback" not in demo.log
    assert "known voice: first audio after" in demo.told
    with wave.open(str(demo.out / "demo.wav")) as sound:
        seconds = sound.getnframes() / sound.getframerate()
    assert SECONDS[0] < seconds < SECONDS[1]


def test_no_proxy_is_asked_between_its_processes(demo: Demo) -> None:
    assert demo.asked_of_proxy == []


def test_it_writes_nothing_into_the_home_of_its_user(demo: Demo) -> None:
    assert list(demo.home.rglob("*")) == []


def test_it_leaves_nothing_but_the_sound_where_temporary_files_are(demo: Demo) -> None:
    assert list(demo.out.iterdir()) == [demo.out / "demo.wav"]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_it_speaks_to_no_other_machine(demo: Demo) -> None:
    found = {address.removeprefix("::ffff:") for address in addresses(demo.calls)}
    assert "127.0.0.1" in found
    assert {address for address in found if not ip_address(address).is_loopback} == set()


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_it_writes_nothing_outside_its_folders(demo: Demo) -> None:
    folders = (ROOT / "build", demo.out, Path("/dev"), Path("/proc"))
    outside = {
        path
        for path in written(demo.calls)
        if path.is_absolute() and "__pycache__" not in path.parts
        if not any(path.is_relative_to(folder) for folder in folders)
    }
    # Triton's python backend makes a folder for packed environments, which may stay when it is killed.
    folders_of_triton = {path for path in outside if path.name.startswith("python_env_")}
    assert [file for folder in folders_of_triton for file in folder.glob("*")] == []
    assert outside == folders_of_triton
