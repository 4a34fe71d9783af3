"""Crashed and stuck models come back by themselves."""

from __future__ import annotations

import os
import signal

import pytest
from hanging_model import HANGING, HANGING_MODEL
from leftovers import leftovers
from tritonclient.utils import InferenceServerException

from cosyvoice_runtime.process import processes
from cosyvoice_runtime.supervisor import Server, ServerDiedError, watch
from cosyvoice_runtime.supervisor.calls import ProbeError


def signal_model(server: Server, model: str, number: signal.Signals) -> None:
    for process in processes.session_members(server.session):
        if process.model == model:
            os.kill(process.pid, number)


def kill_model(server: Server, model: str) -> None:
    signal_model(server, model, signal.SIGKILL)


def test_crashed_model_is_reloaded_and_its_callers_work_again(server, count, eventually):
    count(server, "count", -1)
    eventually(lambda: server.reloads["count"] == 1)
    assert count(server, "chain", 3).rest() == [0, 1, 2]
    assert server.reloads == {"count": 1}


def test_killed_entry_model_is_reloaded_while_another_streams(server, count, eventually):
    stream = count(server, "count", 40, 50)
    assert stream.first() == 0
    kill_model(server, "chain")
    eventually(lambda: server.reloads["chain"] == 1)
    assert count(server, "chain", 2).rest() == [0, 1]
    assert stream.rest() == list(range(1, 40))


def test_silent_model_is_reloaded_after_failed_probes(repository, settings, count, eventually):
    silent: set[int] = set()

    def probe(url: str, timeout_s: float) -> None:
        if any(map(processes.is_alive, silent)):
            raise ProbeError("count: no answer")

    settings = settings.replace(probe_interval_s=0.1, max_failed_probes=1)
    with Server(repository, settings, probes={"count": probe}) as server:
        members = processes.session_members(server.session)
        silent.update(each.pid for each in members if each.model == "count")
        eventually(lambda: server.reloads["count"] == 1)
        assert count(server, "chain", 2).rest() == [0, 1]


def test_model_that_dies_while_it_is_loaded_again_ends_the_server(repository, settings, eventually):
    with Server(repository, settings) as server:
        (repository / "count" / "1" / "model.py").write_text(HANGING_MODEL)
        kill_model(server, "count")
        eventually(lambda: HANGING in settings.log_file.read_text())
        kill_model(server, "count")
        with pytest.raises(ServerDiedError, match="count did not come back"):
            server.wait()
    assert leftovers() == []


def test_model_that_keeps_dying_ends_the_server(repository, settings, eventually, monkeypatch):
    monkeypatch.setattr(watch, "MOST_RELOADS", 1)
    with Server(repository, settings) as server:
        kill_model(server, "count")
        eventually(lambda: server.reloads["count"] == 1)
        kill_model(server, "count")
        with pytest.raises(ServerDiedError, match="its models were reloaded 1 times"):
            server.wait()
    assert leftovers() == []


def test_entry_model_that_dies_with_requests_ends_the_server(repository, settings, count):
    with Server(repository, settings) as server:
        stream = count(server, "chain", 1000, 50)
        assert stream.first() == 0
        kill_model(server, "chain")
        with pytest.raises(ServerDiedError, match=r"chain died with 1 requests in flight|ended by itself"):
            server.wait()
    with pytest.raises(InferenceServerException, match="UNAVAILABLE"):
        stream.rest()
    assert not server.drained


def test_death_of_the_server_itself_is_reported(repository, settings):
    with Server(repository, settings) as server:
        os.kill(server.session, signal.SIGKILL)
        with pytest.raises(ServerDiedError, match="exit code -9"):
            server.wait()
    assert leftovers() == []
