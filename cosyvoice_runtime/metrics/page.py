"""The metrics of all models, read from their files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import prometheus_client
from prometheus_client import generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from cosyvoice_runtime.metrics.metrics import IN_WORK, LIVING_GAUGES, REFUSED
from cosyvoice_runtime.metrics.progress import DONE, STEPS
from cosyvoice_runtime.process.processes import is_alive

COUNTERS = ("_total", "_count")
"""The name endings of numbers that only grow."""


class ModelMetrics(Collector):
    """The metrics of a server's models: gauges of living processes, and counters of dead ones as well."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def collect(self) -> Iterable[prometheus_client.Metric]:
        dead = dead_gauges(self._directory)
        return _families(file for file in self._directory.glob("*.db") if file not in dead)


def render_page(directory: Path) -> str:
    """The page in Prometheus's text format 0.0.4."""
    return generate_latest(ModelMetrics(directory)).decode()


def read_samples(directory: Path) -> list[Sample]:
    """Every line of the page."""
    return [sample for family in ModelMetrics(directory).collect() for sample in family.samples]


def sum_of_counters(directory: Path, model: str) -> float:
    """The sum of a model's counters without refusals, which are no work."""
    samples = [each for each in read_samples(directory) if each.labels.get("model") == model]
    return sum(
        sample.value
        for sample in samples
        if sample.name.endswith(COUNTERS) and sample.labels.get("ending") != REFUSED
    )


def read_request_counts(directory: Path) -> dict[str, int]:
    """The requests in progress by model, summed over its living processes; models without numbers are left
    out."""
    return _counts(read_samples(directory))


def take_lost_counts(directory: Path) -> dict[str, int]:
    """Count the lost requests of dead processes by model, and remove their gauges."""
    files = dead_gauges(directory)
    counts = _counts(samples_of(files))
    for file in files:
        file.unlink(missing_ok=True)
    return counts


def _counts(samples: Iterable[Sample]) -> dict[str, int]:
    samples = [sample for sample in samples if sample.name == IN_WORK]
    return {sample.labels["model"]: int(sample.value) for sample in samples}


def read_progress(directory: Path) -> dict[str, str]:
    """How far each model's start is, such as "31 of 104 kernels"; those without such work are left out."""
    samples = read_samples(directory)
    counts = {_work(sample): int(sample.value) for sample in samples if sample.name == DONE}
    left: dict[str, list[str]] = defaultdict(list)
    for sample in samples:
        if sample.name == STEPS and (count := counts.get(_work(sample), 0)) < sample.value:
            left[sample.labels["model"]].append(f"{count} of {int(sample.value)} {sample.labels['work']}")
    return {model: ", ".join(each) for model, each in left.items()}


def _work(sample: Sample) -> tuple[str, str]:
    return sample.labels["model"], sample.labels["work"]


def samples_of(files: Iterable[Path]) -> list[Sample]:
    """All samples of these files alone."""
    return [sample for family in _families(files) for sample in family.samples]


def dead_gauges(directory: Path) -> list[Path]:
    """The gauge files of dead processes."""
    gauges = directory.glob(f"{LIVING_GAUGES}_*.db")
    return [path for path in gauges if not is_alive(int(path.stem.rpartition(".")[2]))]


def _families(files: Iterable[Path]) -> list[prometheus_client.Metric]:
    complete = [str(file) for file in files if _size(file)]  # A file that is being created is empty at first.
    try:
        return sorted(MultiProcessCollector.merge(complete), key=lambda family: family.name)
    except FileNotFoundError:
        return []  # The directory is being removed.


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # The gauges of a dead process have been removed.
        return 0
