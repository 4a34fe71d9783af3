"""What happens to requests in flight when a server stops."""

from __future__ import annotations

import os
import signal
import threading

from hanging_model import HANGING, HANGING_MODEL
from leftovers import leftovers

from cosyvoice_runtime.process import processes
from cosyvoice_runtime.supervisor import Server


def test_stop_under_load_loses_no_started_stream(repository, settings, count):
    server = Server(repository, settings)
    server.start()
    streams = [count(server, model, 20, 50) for model in ("chain", "count") for _ in range(6)]
    firsts = [stream.first() for stream in streams]
    stop = threading.Thread(target=server.stop)
    stop.start()
    assert [[first, *stream.rest()] for first, stream in zip(firsts, streams, strict=True)] == [
        list(range(20))
    ] * 12
    stop.join(180)
    assert not stop.is_alive()
    assert server.drained


def test_second_stop_request_cuts_streams_off(repository, settings, count):
    server = Server(repository, settings)
    server.start()
    assert count(server, "chain", 1000, 100).first() == 0
    server.request_stop()
    server.request_stop()
    server.stop()
    assert not server.drained
    assert leftovers() == []


def test_stream_longer_than_the_drain_timeout_is_cut_off(repository, settings, count):
    server = Server(repository, settings.replace(drain_timeout_s=0.2, exit_timeout_s=1.0))
    server.start()
    assert count(server, "chain", 1000, 100).first() == 0
    server.stop()
    assert not server.drained
    assert leftovers() == []


def test_stop_in_the_moment_that_a_reload_begins_waits_for_no_request(repository, settings, eventually):
    """Triton waits for ever for a process that is killed just after its start."""

    def stubs() -> set[int]:
        return {each.pid for each in processes.session_members(server.session) if each.model == "chain"}

    with Server(repository, settings.replace(drain_timeout_s=20)) as server:
        [first] = stubs()
        os.kill(first, signal.SIGKILL)
        eventually(lambda: stubs() - {first})
    assert server.drained
    assert leftovers() == []


def test_stop_during_a_reload_waits_for_requests_of_the_others(repository, settings, count, eventually):
    """Triton lets the unload of a model wait for its load."""
    again = repository / "again"
    (again / "1").mkdir(parents=True)
    (again / "config.pbtxt").write_text((repository / "count" / "config.pbtxt").read_text())
    model = again / "1" / "model.py"
    model.write_text((repository / "count" / "1" / "model.py").read_text())
    server = Server(repository, settings.replace(entry_models=("again", "chain")))
    server.start()
    stream = count(server, "chain", 150, 100)  # longer than Control.ANSWER_TIMEOUT_S
    assert stream.first() == 0
    model.write_text(HANGING_MODEL)
    [stub] = [each for each in processes.session_members(server.session) if each.model == "again"]
    os.kill(stub.pid, signal.SIGKILL)
    eventually(lambda: HANGING in settings.log_file.read_text())
    stop = threading.Thread(target=server.stop)
    stop.start()
    assert stream.rest() == list(range(1, 150))
    stop.join(180)
    assert not stop.is_alive()
    assert server.drained
