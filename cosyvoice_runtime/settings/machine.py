"""What the machine offers, as far as ``auto`` settings depend on it."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

DRIVER = "libcuda.so.1"
CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Machine:
    """
    Attributes:
        cores: CPU cores this process may use.
        gpu: a GPU is there, with a torch that can use it.
    """

    cores: int
    gpu: bool

    @classmethod
    def here(cls) -> Machine:
        return cls(usable_cores(), has_driver() and torch_has_gpu())


def has_driver() -> bool:
    """Whether NVIDIA's driver is there; asked first, because torch takes seconds to be imported."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


def torch_has_gpu() -> bool:
    """False without torch."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def usable_cores() -> int:
    """Cores of the affinity mask, cut by a container's CPU quota."""
    cores = len(os.sched_getaffinity(0))
    if CGROUP_QUOTA.exists():
        quota, period = CGROUP_QUOTA.read_text().split()
        if quota != "max":
            cores = min(cores, int(quota) // int(period))
    return max(1, cores)
