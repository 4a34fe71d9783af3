"""What the machine offers, as far as ``auto`` settings depend on it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cosyvoice_runtime.nvidia import Obstacle, has_driver, obstacle_to_torch

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
    """

    cores: int
    gpu: bool
    torch: bool = True
    onnx: bool = True
    obstacle: Obstacle | None = None

    @classmethod
    def here(cls) -> Machine:
        obstacle = obstacle_to_torch()
        gpu = obstacle is None and has_driver()
        return cls(usable_cores(), gpu, installed("torch"), installed("onnx"), obstacle)


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
