"""Calls of a server that never answers end when the server does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from silent_server import TIMEOUT_S, SilentServer

from cosyvoice_runtime.supervisor import Probe
from cosyvoice_runtime.supervisor.calls import Control, ControlError, ProbeError

CALLS: dict[str, Callable[[Path], object]] = {
    "load": lambda path: control(path).load("model", 10 * TIMEOUT_S),
    "unload": lambda path: control(path).unload("model"),
    "metrics": lambda path: control(path).metrics(),
    "probe": lambda path: Probe("model", {"X": np.ones(1, np.int32)})(f"unix:{path}", 10 * TIMEOUT_S),
}


def control(path: Path) -> Control:
    return Control(http=path, metrics=path)


@pytest.mark.parametrize("call", CALLS)
def test_call_ends_with_the_server(call: str, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        with SilentServer(tmp_path) as server:
            calling = pool.submit(CALLS[call], server.path)
            assert server.called.wait(TIMEOUT_S)
        with pytest.raises((ControlError, ProbeError)):
            calling.result(TIMEOUT_S)


def test_call_of_nobody_is_a_control_error(tmp_path):
    with SilentServer(tmp_path) as server:
        path = server.path
    with pytest.raises(ControlError, match="no answer to /v2/repository/models/model/load"):
        control(path).load("model", 5.0)


def test_load_that_takes_long_can_be_looked_after(tmp_path, monkeypatch):
    monkeypatch.setattr("cosyvoice_runtime.supervisor.calls.LOOK_INTERVAL_S", 0.01)
    looked = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with SilentServer(tmp_path) as server:
            calling = pool.submit(control(server.path).load, "model", 10 * TIMEOUT_S, looked.set)
            assert looked.wait(TIMEOUT_S)
        with pytest.raises(ControlError):
            calling.result(TIMEOUT_S)
