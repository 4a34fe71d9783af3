"""Calls of a server that never answers end when their check says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from silent_server import TIMEOUT_S, SilentServer

from cosyvoice_runtime.supervisor import Probe
from cosyvoice_runtime.supervisor.control import Control
from cosyvoice_runtime.supervisor.guarded_call import Check, guarded
from cosyvoice_runtime.supervisor.http_call import ControlError
from cosyvoice_runtime.supervisor.triton_metrics import triton_metrics


class ServerGoneError(Exception):
    """What the checks raise."""


def load(url: str, check: Check) -> None:
    Control(url).load("model", 10 * TIMEOUT_S, check)


def unload(url: str, check: Check) -> None:
    Control(url).unload("model", check)


def states(url: str, check: Check) -> None:
    Control(url).states(check)


def live(url: str, check: Check) -> None:
    Control(url).require_live(check)


def metrics(url: str, check: Check) -> None:
    triton_metrics(url, check)


def probe(url: str, check: Check) -> None:
    Probe("model", {"X": np.ones(1, np.int32)})(url, 10 * TIMEOUT_S, check)


@pytest.mark.parametrize("call", [load, unload, states, live, metrics, probe])
def test_call_ends_with_the_reason_of_its_check(call: Callable[[str, Check], None]):
    gone = threading.Event()

    def check() -> None:
        if gone.is_set():
            raise ServerGoneError("the server has died")

    with SilentServer() as server, ThreadPoolExecutor(1) as pool:
        calling = pool.submit(call, server.url, check)
        assert server.called.wait(TIMEOUT_S)
        gone.set()
        with pytest.raises(ServerGoneError, match="the server has died"):
            calling.result(TIMEOUT_S)


def test_call_of_nobody_is_a_control_error():
    with SilentServer() as server:
        url = server.url
    with pytest.raises(ControlError, match="no answer to /v2/repository/models/model/load"):
        Control(url).load("model", 5.0)


def test_error_of_a_call_that_nothing_ended_is_its_own():
    with pytest.raises(ValueError, match="own"), guarded(lambda: None, lambda: None):
        raise ValueError("own")


def test_result_that_came_before_the_check_failed_counts():
    ended: list[str] = []
    with guarded(lambda: None, lambda: ended.append("ended")):
        result = 3
    assert (result, ended) == (3, [])
