"""Numbers of the supervisor itself, for the page of its server's metrics."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from prometheus_client import Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from cosyvoice_runtime.gpu.nvidia import has_driver
from cosyvoice_runtime.settings.model import CPU
from cosyvoice_runtime.settings.rendered import read_parameters
from cosyvoice_runtime.supervisor.shared_memory import DIRECTORY

TRITONSERVER = "tritonserver"
NETWORKS = ("tensorrt_llm", "token2wav")
"""Models that a GPU is for; the others compute on the CPU everywhere."""
VOICES = ("cosyvoice2", "voices_dir")
"""The model whose setting names the directory of voices."""


class SupervisorMetrics(Collector):
    """What was started again, which probes failed, what computes on the CPU, and how much room is left.

    The numbers live as long as the supervisor, through each restart of its server.

    Args:
        repository: a rendered model repository.
        models: its models.
        logs: directory of the log; its room is shown, as that of the voices and of shared memory.
    """

    def __init__(self, repository: Path, models: Collection[str], logs: Path) -> None:
        self._restarts = Counter(dict.fromkeys((TRITONSERVER, *models), 0))
        self._failed_probes = Counter(dict.fromkeys(models, 0))
        self._on_cpu = _on_cpu(repository)
        self._folders = {"log": logs, **_voices(repository), "shared_memory": DIRECTORY}
        self._process = ProcessCollector(registry=None)

    def knows(self, process: str) -> None:
        """Show a process that has not been started again yet, so that the first time is a rise from 0."""
        self._restarts[process] += 0

    def started_again(self, process: str) -> None:
        """Count a process, or the processes of a model, that had ended or were stuck."""
        self._restarts[process] += 1

    def probe_failed(self, model: str) -> None:
        """Count a probe that a model did not answer as it should."""
        self._failed_probes[model] += 1

    def page(self) -> str:
        """The numbers in Prometheus's text format 0.0.4."""
        return generate_latest(self).decode()

    def collect(self) -> Iterable[Metric]:
        about = "Times that a process, or the processes of a model, were started again."
        yield counter("cosyvoice_restarts_total", about, "process", self._restarts)
        yield counter("cosyvoice_failed_probes_total", "Failed probes.", "model", self._failed_probes)
        about = "1 where a model computes on the CPU although the driver of a GPU is here."
        yield gauge("cosyvoice_cpu_fallback", about, "model", self._on_cpu)
        yield gauge("cosyvoice_disk_free_bytes", "Room on the disk of a place.", "place", self._room())
        yield from self._process.collect()

    def _room(self) -> dict[str, int]:
        room = {}
        for place, folder in self._folders.items():
            with suppress(OSError):  # it is not there yet, or no longer
                room[place] = shutil.disk_usage(folder).free
        return room


def counter(name: str, about: str, label: str, numbers: Mapping[str, int]) -> Metric:
    return _filled(CounterMetricFamily(name, about, labels=[label]), numbers)


def gauge(name: str, about: str, label: str, numbers: Mapping[str, int]) -> Metric:
    return _filled(GaugeMetricFamily(name, about, labels=[label]), numbers)


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, numbers: Mapping[str, int]
) -> CounterMetricFamily | GaugeMetricFamily:
    for value, number in list(numbers.items()):
        family.add_metric([value], number)
    return family


def _on_cpu(repository: Path) -> dict[str, int]:
    devices = {model: _parameter(repository, model, "device") for model in NETWORKS}
    found = {model: device for model, device in devices.items() if device}
    return {model: int(device.startswith(CPU) and has_driver()) for model, device in found.items()}


def _voices(repository: Path) -> dict[str, Path]:
    folder = _parameter(repository, *VOICES)
    return {"voices": Path(folder)} if folder else {}


def _parameter(repository: Path, model: str, key: str) -> str:
    if not (repository / model).is_dir():
        return ""
    return read_parameters(repository / model).get(key, {}).get("string_value", "")
