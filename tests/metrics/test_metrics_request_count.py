from __future__ import annotations

from cosyvoice_runtime.metrics import DIRECTORY_VARIABLE, Metrics
import pytest

from cosyvoice_runtime.request_count import RequestCount, read_request_counts


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
    with pytest.raises(ValueError, match="no"), requests.during(3):
        assert requests.count == 3
        raise ValueError("no")
    assert requests.count == 0
