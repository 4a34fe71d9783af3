"""What the machine offers, as far as ``auto`` settings depend on it."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

DRIVER = "libcuda.so.1"
CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Machine:
    """
    Attributes:
        cores: CPU cores this process may use.
        gpu: a GPU is there, with a torch that can use it.
        torch: it is installed.
        onnx: the package that writes ONNX files is installed.
    """

    cores: int
    gpu: bool
    torch: bool = True
    onnx: bool = True

    @classmethod
    def here(cls) -> Machine:
        gpu = has_driver() and torch_has_gpu()
        return cls(usable_cores(), gpu, installed("torch"), installed("onnx"))


def installed(package: str) -> bool:
    """Whether a package can be imported, which it is not: some take seconds."""
    return find_spec(package) is not None


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
