from __future__ import annotations


def test_server_tells_what_its_models_work_on(server, count, eventually):
    stream = count(server, "chain", 100, 50)
    stream.first()
    assert server.inflight() == {"chain": 1, "count": 1}
    stream.rest()
    eventually(lambda: server.inflight() == {"chain": 0, "count": 0})
