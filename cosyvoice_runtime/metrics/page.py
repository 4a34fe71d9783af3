"""What the models tell of themselves, read from their files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import prometheus_client
from prometheus_client import generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from cosyvoice_runtime.metrics.metrics import LIVING_GAUGES

COUNTERS = ("_total", "_count")
"""How names of numbers end that only grow."""
ENDED = "ZX"
"""States of a process that is a zombie, or gone (proc(5))."""


class ModelMetrics(Collector):
    """Metrics of all models of a server: gauges of living processes, counters of dead ones as well."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def collect(self) -> Iterable[prometheus_client.Metric]:
        _remove_dead_gauges(self._directory)
        try:
            families = MultiProcessCollector.merge(_complete_files(self._directory))
        except FileNotFoundError:
            return []  # the directory is being removed
        return sorted(families, key=lambda family: family.name)


def render_page(directory: Path) -> str:
    """The page in Prometheus's text format 0.0.4."""
    return generate_latest(ModelMetrics(directory)).decode()


def read_samples(directory: Path) -> list[Sample]:
    """Every line of the page."""
    return [sample for family in ModelMetrics(directory).collect() for sample in family.samples]


def sum_of_counters(directory: Path, model: str) -> float:
    """The sum of all numbers of a model that only grow."""
    samples = read_samples(directory)
    return sum(
        sample.value
        for sample in samples
        if sample.labels.get("model") == model and sample.name.endswith(COUNTERS)
    )


def _remove_dead_gauges(directory: Path) -> None:
    for path in directory.glob(f"{LIVING_GAUGES}_*.db"):
        if not _is_alive(int(path.stem.rpartition(".")[2])):
            path.unlink(missing_ok=True)


def _complete_files(directory: Path) -> list[str]:
    """A file that is being created is empty at first."""
    return [str(path) for path in directory.glob("*.db") if _size(path)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # another reader removed a dead process's gauges
        return 0


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ENDED
