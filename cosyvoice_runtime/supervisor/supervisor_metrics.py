"""The supervisor's own metrics."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from functools import partial
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from cosyvoice_runtime.gpu.nvidia import has_driver
from cosyvoice_runtime.settings.model import CPU
from cosyvoice_runtime.settings.repository import read_parameter
from cosyvoice_runtime.supervisor.shared_memory import DIRECTORY

TRITONSERVER = "tritonserver"
NETWORKS = ("tensorrt_llm", "token2wav")
"""The models that may compute on a GPU; all others compute on the CPU."""


class SupervisorMetrics:
    """Metrics of restarts, failed probes, models on the CPU and free space.

    The numbers live as long as the supervisor, through each restart of its server.

    Args:
        repository: a rendered model repository.
        models: names of its models.
        logs: directory of the log, whose free space is shown with that of voices and shared memory.
    """

    def __init__(self, repository: Path, models: Collection[str], logs: Path) -> None:
        disable_created_metrics()
        self._registry = registry = CollectorRegistry()
        about = "Times that a process, or the processes of a model, were started again."
        self.restarts = Counter("cosyvoice_restarts", about, ["process"], registry=registry)
        self.failed_probes = Counter(
            "cosyvoice_failed_probes", "Failed probes.", ["model"], registry=registry
        )
        about = "1 where a model computes on the CPU although the driver of a GPU is here."
        on_cpu = Gauge("cosyvoice_cpu_fallback", about, ["model"], registry=registry)
        about = "Room on the disk of a place."
        room = Gauge("cosyvoice_disk_free_bytes", about, ["place"], registry=registry)
        ProcessCollector(registry=registry)
        for process in (TRITONSERVER, *models):
            self.restarts.labels(process)
        for model in models:
            self.failed_probes.labels(model)
        for model in NETWORKS:
            if device := read_parameter(repository / model, "device"):
                on_cpu.labels(model).set(device.startswith(CPU) and has_driver())
        places = {"log": logs, "shared_memory": DIRECTORY}
        if voices := read_parameter(repository / "cosyvoice2", "voices_dir"):
            places["voices"] = Path(voices)
        for place, folder in places.items():
            room.labels(place).set_function(partial(_free_bytes, folder))

    def page(self) -> str:
        """The metrics in Prometheus's text format 0.0.4."""
        return generate_latest(self._registry).decode()


def _free_bytes(folder: Path) -> int:
    """The free bytes for a folder, which may not exist yet."""
    existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(existing).free
