"""What processes write is what a reader of their directory finds."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cosyvoice_runtime.metrics import DIRECTORY_VARIABLE, Metrics
from cosyvoice_runtime.metrics.page import read_samples, render_page, take_lost_counts

WORKER = """
import sys
from cosyvoice_runtime.metrics import Metrics
metrics = Metrics("m")
gauge = metrics.gauge("busy", "Busy.")
counter = metrics.counter("done_total", "Done.", reason="stop")
told = metrics.counter("told_total", "Told in all.")
wait = metrics.histogram("wait", "Wait.", [1])
print("ready", flush=True)
for line in sys.stdin:
    gauge.add(1)
    counter.add(1)
    told.set(int(line))
    wait.observe(0.5)
    print("told", flush=True)
"""


class Worker:
    """A process of model ``m`` that tells its numbers until it is killed."""

    def __init__(self, directory: Path, **variables: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env=os.environ | {DIRECTORY_VARIABLE: str(directory)} | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read("ready\n")

    def tell(self, total: int) -> None:
        """Add 1 to a gauge, a counter and a histogram, and set another counter to ``total``."""
        self._process.stdin.write(f"{total}\n")
        self._process.stdin.flush()
        self._read("told\n")

    def kill(self) -> None:
        """Leaves a zombie."""
        self._process.kill()
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self, expected: str) -> None:
        assert self._process.stdout.readline() == expected


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def start(**variables: str) -> Worker:
        workers.append(Worker(tmp_path, **variables))
        return workers[-1]

    yield start
    for one in workers:
        one.end()


def in_threads(work: Callable[[], None], count: int = 8) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def shown(directory: Path) -> dict[str, float]:
    """Numbers by name and bound."""
    samples = read_samples(directory)
    return {" ".join([one.name, *filter(None, [one.labels.get("le")])]): one.value for one in samples}


def told(busy: int, done: int, total: int) -> dict[str, float]:
    """What is shown after ``done`` observations, of which living processes count ``busy``."""
    gauges = {"busy": busy} if busy else {}
    buckets = {"wait_bucket 1.0": done, "wait_bucket +Inf": done}
    return (
        gauges | {"done_total": done, "told_total": total, "wait_sum": done / 2, "wait_count": done} | buckets
    )


def test_number_is_exact_under_many_threads(tmp_path):
    counter = Metrics("m", tmp_path).counter("done_total", "Done.", reason="stop")
    in_threads(lambda: [counter.add(1) for _ in range(2000)])
    assert counter.value == 16_000
    assert shown(tmp_path) == {"done_total": 16_000}


def test_place_of_a_number_is_made_with_it_so_that_no_change_can_fail(tmp_path):
    metrics = Metrics("m", tmp_path)
    gauge, counter = metrics.gauge("busy", "Busy."), metrics.counter("done_total", "Done.")
    histogram = metrics.histogram("wait", "Wait.", [0.25, 1, 4])
    before = shown(tmp_path)
    gauge.set(1)
    counter.add(1)
    for seconds in (0.1, 0.5, 2, 8):
        histogram.observe(seconds)
    assert shown(tmp_path).keys() == before.keys()


def test_histogram_counts_every_value_in_the_buckets_that_reach_it(tmp_path):
    histogram = Metrics("m", tmp_path).histogram("wait", "Wait.", [0.25, 1, 4])
    for value in (0, 0.25, 0.5, 1, 1.5, 4, 4.5, 100):
        histogram.observe(value)
    buckets = {"wait_bucket 0.25": 2, "wait_bucket 1.0": 4, "wait_bucket 4.0": 6, "wait_bucket +Inf": 8}
    assert shown(tmp_path) == {"wait_sum": 111.75, "wait_count": 8} | buckets


def test_histogram_is_exact_under_many_threads(tmp_path):
    histogram = Metrics("m", tmp_path).histogram("wait", "Wait.", [1])
    in_threads(lambda: [histogram.observe(value) for value in [0.5, 2] * 500])
    assert shown(tmp_path) == {
        "wait_sum": 10_000,
        "wait_count": 8000,
        "wait_bucket 1.0": 4000,
        "wait_bucket +Inf": 8000,
    }


def test_readers_see_whole_numbers_while_another_thread_writes(tmp_path):
    metric = Metrics("m", tmp_path).gauge("busy", "Busy.")
    values = (0.0, -1.1e300)  # all their bytes differ
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for value in values:
                metric.set(value)

    writer = threading.Thread(target=write)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # or whoever reads waits 5 ms for the writer again and again
    writer.start()
    try:
        seen = {shown(tmp_path)["busy"] for _ in range(500)}
    finally:
        stop.set()
        writer.join()
        sys.setswitchinterval(interval)
    assert seen <= set(values)


def test_readers_see_complete_series_while_another_thread_adds_some(tmp_path):
    metrics = Metrics("m", tmp_path)
    numbers = [str(number) for number in range(1000)]  # more than a file holds at first

    def add() -> None:
        for number in numbers:
            metrics.counter("done_total", "Done.", number=number).add(1)

    writer = threading.Thread(target=add)
    writer.start()
    while writer.is_alive():
        assert {sample.value for sample in read_samples(tmp_path)} <= {0, 1}
    assert sorted(sample.labels["number"] for sample in read_samples(tmp_path)) == sorted(numbers)
    assert {sample.value for sample in read_samples(tmp_path)} == {1}


def test_living_processes_of_one_model_are_summed(tmp_path, worker):
    first, second = worker(), worker()
    first.tell(10)
    second.tell(5)
    second.tell(6)
    assert shown(tmp_path) == told(busy=3, done=3, total=16)


def test_counters_of_a_dead_process_stay_and_its_gauges_vanish(tmp_path, worker):
    first, second = worker(), worker()
    first.tell(10)
    second.tell(5)
    first.kill()
    assert shown(tmp_path) == told(busy=1, done=2, total=15)
    second.kill()
    assert shown(tmp_path) == told(busy=0, done=2, total=15)


def test_process_that_takes_the_place_of_a_dead_one_counts_on(tmp_path, worker):
    first = worker()
    first.tell(10)
    first.end()
    second = worker()
    assert shown(tmp_path) == {"busy": 0} | told(busy=0, done=1, total=10)
    second.tell(3)
    assert shown(tmp_path) == told(busy=1, done=2, total=13)


def test_files_do_not_grow_with_the_number_of_dead_processes(tmp_path, worker):
    sizes = []
    for total in range(4):
        one = worker()
        one.tell(total)
        assert shown(tmp_path)["done_total"] == total + 1
        sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
        one.end()
        take_lost_counts(tmp_path)  # as the supervisor does after a death
    assert set(sizes) == {sizes[0]}


def test_metrics_of_one_name_and_the_same_labels_are_summed(tmp_path):
    first, second = (Metrics("m", tmp_path).gauge("busy", "Busy.") for _ in range(2))
    first.add(1)
    second.set(0.2)
    assert (first.value, second.value) == (1, 0.2)
    assert shown(tmp_path) == {"busy": 1.2}
    second.set(0)
    assert shown(tmp_path) == {"busy": 1}


def test_page_has_a_heading_for_each_metric_and_escapes_texts(tmp_path):
    label = 'a "quoted"\\ text\nof 2 lines, 声'
    metrics = Metrics("m", tmp_path)
    metrics.gauge("busy", label, text=label).set(0.5)
    metrics.counter("done_total", "Done.").add(2)
    metrics.histogram("wait", "Wait.", [1]).observe(3)
    assert render_page(tmp_path).splitlines() == [
        r'# HELP busy a "quoted"\\ text\nof 2 lines, 声',
        "# TYPE busy gauge",
        r'busy{model="m",text="a \"quoted\"\\ text\nof 2 lines, 声"} 0.5',
        "# HELP done_total Done.",
        "# TYPE done_total counter",
        'done_total{model="m"} 2.0',
        "# HELP wait Wait.",
        "# TYPE wait histogram",
        'wait_sum{model="m"} 3.0',
        'wait_bucket{le="1.0",model="m"} 0.0',
        'wait_bucket{le="+Inf",model="m"} 1.0',
        'wait_count{model="m"} 1.0',
    ]


def test_removed_directory_holds_nothing(tmp_path):
    assert read_samples(tmp_path / "removed") == []
    assert render_page(tmp_path / "removed") == ""


def test_directory_of_other_users_of_the_library_is_left_alone(tmp_path, worker):
    others = tmp_path / "others"
    others.mkdir()
    worker(PROMETHEUS_MULTIPROC_DIR=str(others)).tell(1)
    assert list(others.iterdir()) == []
    assert shown(tmp_path) == told(busy=1, done=1, total=1)


def test_metrics_of_other_users_of_the_library_stay_in_their_process(tmp_path):
    code = "from cosyvoice_runtime.metrics import Metrics; from prometheus_client import Gauge\n"
    code += "Metrics('m').gauge('busy', 'Busy.').set(1); Gauge('theirs', 'Theirs.').set(1)"
    subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {DIRECTORY_VARIABLE: str(tmp_path)}, check=True
    )
    assert "theirs" not in "".join(path.read_bytes().decode("latin1") for path in tmp_path.iterdir())


def test_without_a_supervisor_numbers_are_kept_and_one_warning_says_so(monkeypatch, caplog):
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    with caplog.at_level(logging.WARNING):
        metrics = [Metrics("alone") for _ in range(2)]
    assert caplog.text.count("alone: nobody serves its metrics, SUPERVISOR_METRICS_DIR is not set") == 1
    gauge = metrics[0].gauge("busy", "Busy.")
    gauge.set(3)
    gauge.add(0.5)
    assert gauge.value == 3.5


def test_counter_that_does_not_end_in_total_is_refused(tmp_path):
    with pytest.raises(ValueError, match="done: the name of a counter ends in _total"):
        Metrics("m", tmp_path).counter("done", "Done.")


@pytest.mark.parametrize("bounds", [[1, 1], [2, 1], [float("inf")], [float("nan")]])
def test_buckets_that_do_not_rise_are_refused(tmp_path, bounds):
    with pytest.raises(ValueError, match=r"wait: buckets .* are not finite and rising"):
        Metrics("m", tmp_path).histogram("wait", "Wait.", bounds)
