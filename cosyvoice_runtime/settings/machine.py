"""What the machine offers, as far as ``auto`` settings depend on it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Machine:
    """
    Attributes:
        cores: CPU cores this process may use.
        gpu: a GPU is there that torch can use.
    """

    cores: int
    gpu: bool

    @classmethod
    def here(cls) -> Machine:
        import torch

        return cls(usable_cores(), torch.cuda.is_available())


def usable_cores() -> int:
    """Cores of the affinity mask, cut by a container's CPU quota."""
    cores = len(os.sched_getaffinity(0))
    if CGROUP_QUOTA.exists():
        quota, period = CGROUP_QUOTA.read_text().split()
        if quota != "max":
            cores = min(cores, int(quota) // int(period))
    return max(1, cores)
