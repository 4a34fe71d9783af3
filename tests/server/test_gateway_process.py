"""A gateway as a process: one that never opens, that hangs, and that can't be started again at once."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import gateway_process
from cosyvoice_runtime.supervisor.errors import StartError
from cosyvoice_runtime.supervisor.gateway_process import GatewayProcess
from cosyvoice_runtime.supervisor.metrics import SupervisorMetrics

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
import asyncio, sys, threading
from cosyvoice_runtime.gateway import __main__ as process

read, lines = sys.stdin.readline, threading.Semaphore(0)

class Input:
    def readline(self):
        lines.release()
        return read()

class Gateway:
    async def start(self):
        asyncio.get_running_loop().call_soon(hang)

    async def close(self):
        pass

def hang():
    lines.acquire(), lines.acquire()  # the options, and the question
    lines.acquire(timeout=0.5)  # for what comes after an answer
    print("goes on", flush=True)

sys.stdin = Input()
process._gateway = lambda *_: Gateway()
sys.exit(process.main())
"""


@pytest.fixture
def settings() -> ServerSettings:
    return UNASKED


@pytest.fixture
def counts(tmp_path: Path) -> SupervisorMetrics:
    return SupervisorMetrics(tmp_path, (), tmp_path)


class Starter:
    """Starts a stand-in where a server starts its gateways.

    Args:
        script: what the stand-in does once it has its options, until its input ends.
    """

    def __init__(self, folder: Path, script: str) -> None:
        self._script = f"read options\n{script}\nread end\n"
        self._log = folder / "log"
        self._opened = folder / "opened"
        self.failures = 0
        self.started: list[subprocess.Popen[str]] = []

    def spawn(self, command: list[str], **streams: Any) -> subprocess.Popen[str]:
        if self.started and self.failures:
            self.failures -= 1
            raise OSError("Cannot allocate memory")
        with self._log.open("ab") as log:
            shell = ["/bin/sh", "-c", self._script, str(self._opened)]
            process = subprocess.Popen(shell, stderr=log, text=True, **streams)
        self.started.append(process)
        return process

    def all_ended(self) -> bool:
        return all(process.poll() is not None for process in self.started)


@pytest.fixture
def starter(tmp_path: Path, request) -> Starter:
    return Starter(tmp_path, request.param)


@pytest.fixture
def gateway(
    starter: Starter, settings: ServerSettings, counts: SupervisorMetrics
) -> Iterator[GatewayProcess]:
    process = GatewayProcess(starter, "http", OPTIONS, counts, settings)
    yield process
    process.close()
    assert starter.all_ended()


@pytest.mark.parametrize("starter", ["exec sleep 600"], indirect=True)
def test_start_does_not_wait_for_one_that_is_killed_before_it_opens(gateway):
    killing = threading.Timer(0.1, gateway.kill)
    killing.start()
    with pytest.raises(StartError, match="see the log"):
        gateway.wait_until_open()


@pytest.mark.parametrize("starter", ["echo the port is taken"], indirect=True)
def test_one_that_says_why_it_can_not_open_is_quoted(gateway):
    with pytest.raises(StartError, match=r"http can't be served at 127\.0\.0\.1:1: the port is taken"):
        gateway.wait_until_open()


@pytest.mark.parametrize("starter", ["echo open"], indirect=True)
def test_one_that_can_not_be_started_again_is_tried_until_it_can(
    gateway, starter, monkeypatch, caplog, eventually
):
    monkeypatch.setattr(gateway_process, "RETRY_S", 0.01)
    starter.failures = 2
    gateway.wait_until_open()
    gateway.kill()
    eventually(lambda: len(starter.started) == 2)
    assert caplog.text.count("can't be started: Cannot allocate memory") == 2


@pytest.mark.parametrize("settings", [ASKED])
@pytest.mark.parametrize("starter", [f"echo open; {HANGS}"], indirect=True)
def test_one_that_gives_no_answer_is_started_again(gateway, tmp_path, counts, eventually, caplog):
    gateway.wait_until_open()
    assert 'cosyvoice_restarts_total{process="http gateway"}' in counts.page()
    eventually(lambda: (tmp_path / "log").read_text().count("hangs") >= 2)
    assert "the gateway of http gives no answer and is killed" in caplog.text
    assert "the gateway of http ended with exit code -9 and is started again" in caplog.text
    eventually(lambda: 'process="http gateway"} 0.0' not in counts.page())


@pytest.mark.parametrize("settings", [PATIENT])
@pytest.mark.parametrize("starter", [f"echo open; {ANSWERS}"], indirect=True)
def test_one_that_answers_is_asked_again_and_again(gateway, tmp_path, eventually, caplog):
    gateway.wait_until_open()
    eventually(lambda: (tmp_path / "log").read_text().count("answered") >= 5)
    assert caplog.text == ""


@pytest.mark.parametrize("settings", [FORGIVING])
@pytest.mark.parametrize("starter", [f"echo open; read one; read two; {ANSWERS}"], indirect=True)
def test_one_that_answers_late_is_left_alone(gateway, tmp_path, eventually, caplog):
    gateway.wait_until_open()
    eventually(lambda: "answered" in (tmp_path / "log").read_text())
    assert caplog.text == ""


@pytest.mark.parametrize("settings", [UNASKED, PATIENT])
@pytest.mark.parametrize("starter", [f"echo open; {HANGS}"], indirect=True)
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


@pytest.mark.parametrize("starter", ["echo open"], indirect=True)
def test_one_in_a_process_with_many_files_is_heard(many_files, gateway, starter):
    assert starter.started[0].stdout.fileno() > 1023
    gateway.wait_until_open()
