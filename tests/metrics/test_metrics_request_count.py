from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cosyvoice_runtime.metrics import DIRECTORY_VARIABLE, Metrics
from cosyvoice_runtime.metrics.metrics import RequestCount
from cosyvoice_runtime.metrics.page import read_request_counts, render_page, take_lost_counts


def test_requests_are_counted_by_model(tmp_path):
    one, other = (RequestCount(model, tmp_path) for model in ("a", "b"))
    one.enter(2)
    one.enter()
    one.leave()
    assert read_request_counts(tmp_path) == {"a": 2, "b": 0}
    assert (one.count, other.count) == (2, 0)


def test_requests_of_a_dead_process_are_not_counted(tmp_path):
    code = "import os; from cosyvoice_runtime.metrics.metrics import RequestCount\n"
    code += "RequestCount('a').enter(5); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {DIRECTORY_VARIABLE: str(tmp_path)})
    assert read_request_counts(tmp_path) == {}
    RequestCount("a", tmp_path).enter()
    assert read_request_counts(tmp_path) == {"a": 1}


def test_requests_of_a_dead_process_are_told_as_lost_once_even_after_the_page_was_read(tmp_path):
    code = "import os; from cosyvoice_runtime.metrics.metrics import RequestCount\n"
    code += "RequestCount('a').enter(5); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {DIRECTORY_VARIABLE: str(tmp_path)})
    living = RequestCount("a", tmp_path)
    living.enter()
    render_page(tmp_path)
    assert take_lost_counts(tmp_path) == {"a": 5}
    assert take_lost_counts(tmp_path) == {}
    assert read_request_counts(tmp_path) == {"a": 1}


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
