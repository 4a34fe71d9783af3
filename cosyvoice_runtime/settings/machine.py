"""What the machine offers, as far as ``auto`` settings depend on it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cosyvoice_runtime.gpu.nvidia import GpuFacts, Obstacle, gpus_of_torch, has_driver, obstacle_to_torch

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Machine:
    """
    Attributes:
        cores: CPU cores this process may use.
        gpu: a GPU is there, with a torch that can use it.
        torch: it is installed.
        onnx: the package that writes ONNX files is installed.
        obstacle: what keeps torch from the GPU of a machine that has NVIDIA's driver.
        gpus: by number, as far as they are known.
    """

    cores: int
    gpu: bool
    torch: bool = True
    onnx: bool = True
    obstacle: Obstacle | None = None
    gpus: tuple[GpuFacts, ...] = ()

    @classmethod
    def here(cls) -> Machine:
        obstacle = obstacle_to_torch()
        gpu = obstacle is None and has_driver()
        gpus = gpus_of_torch() if gpu else ()
        return cls(usable_cores(), gpu, installed("torch"), installed("onnx"), obstacle, gpus)

    def facts_of(self, number: int | None) -> GpuFacts | None:
        """Of a GPU; None where they aren't known, and for a CPU."""
        return self.gpus[number] if number is not None and number < len(self.gpus) else None


def installed(package: str) -> bool:
    """Whether a package can be imported, which it is not: some take seconds."""
    return find_spec(package) is not None


def usable_cores() -> int:
    """Cores of the affinity mask, cut by a container's CPU quota."""
    cores = len(os.sched_getaffinity(0))
    if CGROUP_QUOTA.exists():
        quota, period = CGROUP_QUOTA.read_text().split()
        if quota != "max":
            cores = min(cores, int(quota) // int(period))
    return max(1, cores)
