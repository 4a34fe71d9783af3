"""What happens to requests in flight when a server stops."""

from __future__ import annotations

import threading

from leftovers import leftovers

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
