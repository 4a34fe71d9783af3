from __future__ import annotations

import threading

from cosyvoice_runtime.request_count import RequestCount, read_request_counts


def test_count_is_exact_under_many_threads(tmp_path):
    requests = RequestCount("model", str(tmp_path))

    def work() -> None:
        for _ in range(1000):
            requests.enter()
            requests.leave()
        requests.enter()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert requests.count == 8
    assert read_request_counts(tmp_path) == {"model": 8}


def test_model_without_requests_tells_zero(tmp_path):
    RequestCount("model", str(tmp_path))
    assert read_request_counts(tmp_path) == {"model": 0}


def test_dead_process_does_not_count(tmp_path):
    (tmp_path / "999999999-model").write_text("3")
    assert read_request_counts(tmp_path) == {}


def test_without_a_supervisor_only_the_number_is_kept(monkeypatch):
    monkeypatch.delenv("SUPERVISOR_REQUEST_COUNT_DIR", raising=False)
    requests = RequestCount("model")
    requests.enter()
    assert requests.count == 1


def test_server_tells_what_its_models_work_on(server, count, eventually):
    stream = count(server, "chain", 20, 50)
    stream.first()
    assert server.inflight() == {"chain": 1, "count": 1}
    stream.rest()
    eventually(lambda: server.inflight() == {"chain": 0, "count": 0})
