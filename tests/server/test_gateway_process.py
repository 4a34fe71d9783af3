"""A gateway as a process: one that never opens, and one that can't be started again at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.supervisor import gateway_process
from cosyvoice_runtime.supervisor.errors import StartError
from cosyvoice_runtime.supervisor.gateway_process import GatewayProcess
from cosyvoice_runtime.supervisor.guarded_call import keep_waiting
from cosyvoice_runtime.supervisor.log_file import LogFile

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


@pytest.fixture
def gateway(tmp_path: Path, request) -> Iterator[GatewayProcess]:
    """A stand-in that does what the parameter says once it has its options, until its input ends."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nread options\n{request.param}\nread end\n")
    python.chmod(0o700)
    process = GatewayProcess("http", OPTIONS, python, LogFile(tmp_path / "log", 1 << 20))
    yield process
    process.close()
    assert process._process.poll() is not None


@pytest.mark.parametrize("gateway", ["true"], indirect=True)
def test_start_does_not_wait_for_one_that_never_opens(gateway):
    looks = []

    def check() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise StartError("told to stop while starting")

    with pytest.raises(StartError, match="told to stop"):
        gateway.wait_until_open(check)


@pytest.mark.parametrize("gateway", ["echo the port is taken"], indirect=True)
def test_one_that_says_why_it_can_not_open_is_quoted(gateway):
    with pytest.raises(StartError, match=r"http can't be served at 127\.0\.0\.1:1: the port is taken"):
        gateway.wait_until_open(keep_waiting)


@pytest.mark.parametrize("gateway", ["echo open"], indirect=True)
def test_one_that_can_not_be_started_again_is_tried_until_it_can(gateway, monkeypatch, caplog):
    gateway.wait_until_open(keep_waiting)
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
    gateway.wait_until_open(keep_waiting)
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
