"""What processes write is what a reader of their directory finds."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cosyvoice_runtime.metrics import DIRECTORY_VARIABLE, Metrics, Series, read_series

WORKER = """
import sys
from cosyvoice_runtime.metrics import Metrics
metrics = Metrics("m")
gauge = metrics.gauge("busy", "Busy.")
counter = metrics.counter("done", "Done.", reason="stop")
for _ in range(1000):
    gauge.add(1)
    counter.add(1)
print("ready", flush=True)
sys.stdin.readline()
"""
LABELS = (("model", "m"),)
BUSY = Series("busy", "gauge", "Busy.", LABELS)
DONE = Series("done", "counter", "Done.", (*LABELS, ("reason", "stop")))


def in_threads(work: Callable[[], None], count: int = 8) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def start_worker(directory: Path) -> subprocess.Popen[str]:
    """A process that has told its numbers and lives on."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env=os.environ | {DIRECTORY_VARIABLE: str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.communicate()


def test_number_is_exact_under_many_threads(tmp_path):
    counter = Metrics("m", tmp_path).counter("done", "Done.", reason="stop")
    in_threads(lambda: [counter.add(1) for _ in range(2000)])
    assert counter.value == 16_000
    assert read_series(tmp_path) == {DONE: [16_000]}


def test_histogram_counts_every_value_in_the_bucket_that_reaches_it(tmp_path):
    histogram = Metrics("m", tmp_path).histogram("wait", "Wait.", [0.25, 1, 4])
    for value in (0, 0.25, 0.5, 1, 1.5, 4, 4.5, 100):
        histogram.observe(value)
    series = Series("wait", "histogram", "Wait.", LABELS, (0.25, 1.0, 4.0))
    assert read_series(tmp_path) == {series: [111.75, 2, 2, 2, 2]}


def test_histogram_is_exact_under_many_threads(tmp_path):
    histogram = Metrics("m", tmp_path).histogram("wait", "Wait.", [1])
    in_threads(lambda: [histogram.observe(value) for value in [0.5, 2] * 500])
    assert list(read_series(tmp_path).values()) == [[10_000, 4000, 4000]]


def test_readers_see_whole_numbers_while_another_thread_writes(tmp_path):
    metric = Metrics("m", tmp_path).gauge("busy", "Busy.")
    values = (0.0, -1.1e300)  # all their bytes differ
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for value in values:
                metric.set(value)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = {read_series(tmp_path)[BUSY][0] for _ in range(500)}
    finally:
        stop.set()
        writer.join()
    assert seen <= set(values)


def test_processes_are_summed_and_dead_ones_left_out(tmp_path):
    first, second = start_worker(tmp_path), start_worker(tmp_path)
    try:
        assert read_series(tmp_path) == {BUSY: [2000], DONE: [2000]}
        first.kill()
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # dead, but not waited for
        assert read_series(tmp_path) == {BUSY: [1000], DONE: [1000]}
    finally:
        end(first)
        end(second)
    assert read_series(tmp_path) == {}


def test_gauge_goes_with_its_owner(tmp_path):
    metrics = Metrics("m", tmp_path)
    gauge = metrics.gauge("busy", "Busy.")
    assert read_series(tmp_path) == {BUSY: [0]}
    del gauge
    assert read_series(tmp_path) == {}


def test_one_name_can_be_read_alone(tmp_path):
    metrics = Metrics("m", tmp_path)
    kept = metrics.gauge("busy", "Busy."), metrics.gauge("busy_too", "Busy, too.")
    assert len(read_series(tmp_path)) == len(kept)
    assert read_series(tmp_path, "busy") == {BUSY: [0]}


def test_text_of_any_kind_is_read_back(tmp_path):
    label = 'a "quoted"\\ text\nof 2 lines, 声'
    metric = Metrics(label, tmp_path).gauge("busy", label)
    assert read_series(tmp_path) == {Series("busy", "gauge", label, (("model", label),)): [metric.value]}


def test_removed_directory_holds_nothing(tmp_path):
    assert read_series(tmp_path / "removed") == {}


def test_without_a_supervisor_numbers_are_kept_and_a_warning_says_so(monkeypatch, caplog):
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    with caplog.at_level(logging.WARNING):
        metrics = Metrics("m")
    assert "m: nobody serves its metrics, SUPERVISOR_METRICS_DIR is not set" in caplog.text
    gauge = metrics.gauge("busy", "Busy.")
    gauge.set(3)
    gauge.add(0.5)
    assert gauge.value == 3.5


@pytest.mark.parametrize("name", ["", "a-b", "1a", "a b", "größe"])
def test_names_that_prometheus_refuses_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="can't be the name"):
        Metrics("m", tmp_path).gauge(name, "")
    with pytest.raises(ValueError, match="can't be the name"):
        Metrics("m", tmp_path).gauge("busy", "", **{name: "text"})


@pytest.mark.parametrize("bounds", [[1, 1], [2, 1], [float("inf")], [float("nan")]])
def test_bounds_that_do_not_rise_are_refused(tmp_path, bounds):
    with pytest.raises(ValueError, match=r"wait: bounds .* are not finite and rising"):
        Metrics("m", tmp_path).histogram("wait", "Wait.", bounds)
