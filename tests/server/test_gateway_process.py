"""A gateway as a process: one that never opens, that hangs, and that can't be started again at once."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import gateway_process
from cosyvoice_runtime.supervisor.errors import StartError
from cosyvoice_runtime.supervisor.gateway_process import GatewayProcess
from cosyvoice_runtime.supervisor.lifeline import Lifeline
from cosyvoice_runtime.supervisor.log_file import LogFile
from cosyvoice_runtime.supervisor.supervisor_metrics import SupervisorMetrics

TIMEOUT_S = 120.0
OPTIONS = GatewayOptions(
    address="127.0.0.1:1",
    server="/nowhere",
    open_models=(),
    stages=(),
    max_request_bytes=1,
    max_pending_bytes=1,
    shared="/nowhere",
)


UNASKED = ServerSettings(probe_interval_s=0.0)
ASKED = ServerSettings(probe_interval_s=0.01, probe_timeout_s=0.1, max_failed_probes=3)
PATIENT = ServerSettings(probe_interval_s=0.01, probe_timeout_s=TIMEOUT_S, max_failed_probes=1)
FORGIVING = ServerSettings(probe_interval_s=0.01, probe_timeout_s=0.5, max_failed_probes=100)
ANSWERS = "while read question; do echo alive; echo answered >&2; done"
HANGS = "echo hangs >&2; kill -s STOP $$"

HANGING_LOOP = """
import asyncio, sys, time
from cosyvoice_runtime.gateway import __main__ as process

class Gateway:
    async def start(self):
        asyncio.get_running_loop().call_soon(hang)

    async def close(self):
        pass

def hang():
    time.sleep(1)
    print("goes on", flush=True)

process._gateway = lambda *_: Gateway()
sys.exit(process.main())
"""


@pytest.fixture
def settings() -> ServerSettings:
    return UNASKED


@pytest.fixture
def lifeline(tmp_path: Path) -> Iterator[Lifeline]:
    line = Lifeline(f"cosyvoice_{os.getpid()}_none_", tmp_path / "run")
    yield line
    line.release()


@pytest.fixture
def counts(tmp_path: Path) -> SupervisorMetrics:
    return SupervisorMetrics(tmp_path, (), tmp_path)


@pytest.fixture
def gateway(
    tmp_path: Path, settings: ServerSettings, lifeline: Lifeline, counts: SupervisorMetrics, request
) -> Iterator[GatewayProcess]:
    """A stand-in that does what the parameter says once it has its options, until its input ends."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nread options\n{request.param}\nread end\n")
    python.chmod(0o700)
    log = LogFile(tmp_path / "log", 1 << 20)
    process = GatewayProcess("http", OPTIONS, python, log, lifeline, counts, settings)
    yield process
    process.close()
    assert process._process.poll() is not None
    assert lifeline._sessions == set()


OPENS_ONCE = 'test -e "$0.opened" && exit 1; touch "$0.opened"; echo open; exit 1'
OPENS_AGAIN = "echo open; exit 1"


@pytest.mark.parametrize(
    ("gateway", "pauses"),
    [(OPENS_ONCE, [0.2, 0.4, 0.8, 1.6]), (OPENS_AGAIN, [0.2] * 4)],
    indirect=["gateway"],
)
def test_pauses_grow_before_one_that_does_not_open_again(gateway, pauses, eventually):
    waited: list[float] = []
    wait = gateway._closing.wait

    def shortly(seconds: float) -> bool:
        waited.append(seconds)
        return wait(0.01)

    gateway._closing.wait = shortly
    gateway.wait_until_open()
    eventually(lambda: len(waited) >= len(pauses))
    assert waited[: len(pauses)] == pauses


@pytest.mark.parametrize("gateway", ["exec sleep 600"], indirect=True)
def test_start_does_not_wait_for_one_that_is_killed_before_it_opens(gateway):
    killing = threading.Timer(0.1, gateway.kill)
    killing.start()
    with pytest.raises(StartError, match="see the log"):
        gateway.wait_until_open()


@pytest.mark.parametrize("gateway", ["echo the port is taken"], indirect=True)
def test_one_that_says_why_it_can_not_open_is_quoted(gateway):
    with pytest.raises(StartError, match=r"http can't be served at 127\.0\.0\.1:1: the port is taken"):
        gateway.wait_until_open()


@pytest.mark.parametrize("gateway", ["echo open"], indirect=True)
def test_one_that_can_not_be_started_again_is_tried_until_it_can(gateway, monkeypatch, caplog):
    gateway.wait_until_open()
    start, tries, started = gateway._start, [], threading.Event()

    def no_room_at_first():
        tries.append(1)
        if len(tries) < 3:
            raise OSError("Cannot allocate memory")
        process = start()
        started.set()
        return process

    monkeypatch.setattr(gateway_process, "RETRY_S", 0.01)
    monkeypatch.setattr(gateway, "_start", no_room_at_first)
    os.kill(gateway._process.pid, signal.SIGKILL)
    assert started.wait(TIMEOUT_S)
    assert caplog.text.count("can't be started: Cannot allocate memory") == 2


@pytest.mark.parametrize("gateway", ["echo open"], indirect=True)
def test_one_that_is_closed_while_it_is_started_again_ends(gateway, monkeypatch):
    gateway.wait_until_open()
    start, end, started, ended = gateway._start, gateway._end, threading.Event(), threading.Event()

    def start_slowly():
        process = start()
        started.set()
        assert ended.wait(TIMEOUT_S)
        return process

    def end_what_is_there():
        end()
        ended.set()

    monkeypatch.setattr(gateway, "_start", start_slowly)
    monkeypatch.setattr(gateway, "_end", end_what_is_there)
    os.kill(gateway._process.pid, signal.SIGKILL)
    assert started.wait(TIMEOUT_S)
    closing = threading.Thread(target=gateway.close, daemon=True)
    closing.start()
    closing.join(TIMEOUT_S)
    assert not closing.is_alive()


@pytest.mark.parametrize("settings", [ASKED])
@pytest.mark.parametrize("gateway", [f"echo open; {HANGS}"], indirect=True)
def test_one_that_gives_no_answer_is_started_again(gateway, tmp_path, counts, eventually, caplog):
    gateway.wait_until_open()
    assert 'cosyvoice_restarts_total{process="http gateway"} 0.0' in counts.page()
    eventually(lambda: (tmp_path / "log").read_text().count("hangs") >= 2)
    assert "the gateway of http gives no answer and is killed" in caplog.text
    assert "the gateway of http ended with exit code -9 and is started again" in caplog.text
    eventually(lambda: 'process="http gateway"} 0.0' not in counts.page())


@pytest.mark.parametrize("settings", [PATIENT])
@pytest.mark.parametrize("gateway", [f"echo open; {ANSWERS}"], indirect=True)
def test_one_that_answers_is_asked_again_and_again(gateway, tmp_path, eventually, caplog):
    gateway.wait_until_open()
    eventually(lambda: (tmp_path / "log").read_text().count("answered") >= 5)
    assert caplog.text == ""


@pytest.mark.parametrize("settings", [FORGIVING])
@pytest.mark.parametrize("gateway", [f"echo open; read one; read two; {ANSWERS}"], indirect=True)
def test_one_that_answers_late_is_left_alone(gateway, tmp_path, eventually, caplog):
    gateway.wait_until_open()
    eventually(lambda: "answered" in (tmp_path / "log").read_text())
    assert caplog.text == ""


@pytest.mark.parametrize("settings", [PATIENT])
@pytest.mark.parametrize(
    "gateway",
    [f"test -e $0.again && sleep 1; touch $0.again; echo opens >&2; echo open; {ANSWERS}"],
    indirect=True,
)
def test_one_that_starts_again_is_asked_once_it_is_open(gateway, tmp_path, eventually, monkeypatch):
    gateway.wait_until_open()
    killed, asks, opened_when_asked = gateway._process, gateway._answers, []

    def ask(process):
        if process is not killed:
            opened_when_asked.append((tmp_path / "log").read_text().count("opens"))
        return asks(process)

    monkeypatch.setattr(gateway, "_answers", ask)
    killed.kill()
    eventually(lambda: len(opened_when_asked) >= 3)
    assert set(opened_when_asked) == {2}


@pytest.mark.parametrize("settings", [UNASKED, PATIENT])
@pytest.mark.parametrize("gateway", [f"echo open; {HANGS}"], indirect=True)
def test_one_that_hangs_is_closed_in_time(gateway, tmp_path, eventually):
    gateway.wait_until_open()
    eventually(lambda: "hangs" in (tmp_path / "log").read_text())
    closing = threading.Thread(target=gateway.close, daemon=True)
    closing.start()
    closing.join(TIMEOUT_S / 2)
    assert not closing.is_alive()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_each_line_is_answered_until_the_end_of_the_input(protocol):
    command = [sys.executable, "-m", "cosyvoice_runtime.gateway", protocol]
    options = replace(OPTIONS, address="127.0.0.1:0", shared="").to_json()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as gateway:
        said, _ = gateway.communicate(f"{options}\n?\n?\n", TIMEOUT_S)
    assert (said, gateway.returncode) == ("open\nalive\nalive\n", 0)


def test_nothing_is_answered_while_the_event_loop_hangs():
    command = [sys.executable, "-c", HANGING_LOOP, "http"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as gateway:
        said, _ = gateway.communicate(f"{OPTIONS.to_json()}\n?\n", TIMEOUT_S)
    assert said == "open\ngoes on\nalive\n"


@pytest.fixture
def many_files() -> Iterator[None]:
    """More than select() knows, in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"no process may have more than {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    yield
    for each in held:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("gateway", ["echo open"], indirect=True)
def test_one_in_a_process_with_many_files_is_heard(many_files, gateway):
    assert gateway._process.stdout.fileno() > 1023
    gateway.wait_until_open()
