"""Calls of a server that never answers end when the server does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from silent_server import TIMEOUT_S, SilentServer

from cosyvoice_runtime.supervisor import Probe
from cosyvoice_runtime.supervisor.control import Control, ControlError, triton_metrics
from cosyvoice_runtime.supervisor.probe import ProbeError

CALLS: dict[str, Callable[[str], object]] = {
    "load": lambda url: Control(url).load("model", 10 * TIMEOUT_S),
    "unload": lambda url: Control(url).unload("model"),
    "states": lambda url: Control(url).states(),
    "live": lambda url: Control(url).require_live(),
    "metrics": triton_metrics,
    "probe": lambda url: Probe("model", {"X": np.ones(1, np.int32)})(url, 10 * TIMEOUT_S),
}


@pytest.mark.parametrize("call", CALLS)
def test_call_ends_with_the_server(call: str):
    with ThreadPoolExecutor(1) as pool:
        with SilentServer() as server:
            calling = pool.submit(CALLS[call], server.url)
            assert server.called.wait(TIMEOUT_S)
        with pytest.raises((ControlError, ProbeError)):
            calling.result(TIMEOUT_S)


def test_call_of_nobody_is_a_control_error():
    with SilentServer() as server:
        url = server.url
    with pytest.raises(ControlError, match="no answer to /v2/repository/models/model/load"):
        Control(url).load("model", 5.0)


def test_load_that_takes_long_can_be_looked_after():
    looked = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with SilentServer() as server:
            calling = pool.submit(Control(server.url).load, "model", 10 * TIMEOUT_S, looked.set)
            assert looked.wait(TIMEOUT_S)
        with pytest.raises(ControlError):
            calling.result(TIMEOUT_S)
