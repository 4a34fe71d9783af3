from __future__ import annotations

import pytest

from cosyvoice_runtime.metrics import DIRECTORY_VARIABLE, Metrics
from cosyvoice_runtime.metrics.request_count import RequestCount, read_request_counts


def test_requests_are_counted_by_model_and_summed_over_its_processes(tmp_path):
    one, same, other = (RequestCount(model, tmp_path) for model in ("a", "a", "b"))
    one.enter()
    one.enter()
    one.leave()
    same.enter()
    assert read_request_counts(tmp_path) == {"a": 2, "b": 0}
    assert (one.count, same.count, other.count) == (1, 1, 0)


def test_other_metrics_are_no_requests(tmp_path):
    gauge = Metrics("a", tmp_path).gauge("busy", "Busy.")
    gauge.set(3)
    assert read_request_counts(tmp_path) == {}


def test_without_a_supervisor_only_the_number_is_kept(monkeypatch):
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    requests = RequestCount("model")
    requests.enter()
    assert requests.count == 1


def test_requests_count_during_a_block_even_if_it_fails(tmp_path):
    requests = RequestCount("model", tmp_path)
    counts = []

    def work() -> None:
        with requests.during(3):
            counts.append(requests.count)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        work()
    assert [*counts, requests.count] == [3, 0]
