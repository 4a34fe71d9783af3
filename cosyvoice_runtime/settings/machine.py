"""The machine, as far as ``auto`` settings depend on it, and GPUs that settings ask for in vain."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gpu.nvidia import (
    GpuFacts,
    Obstacle,
    gpus_of_torch,
    has_driver,
    obstacle,
    obstacle_to_torch,
)
from cosyvoice_runtime.settings.model import CUDA
from cosyvoice_runtime.settings.section import AUTO

if TYPE_CHECKING:
    from cosyvoice_runtime.settings.section import Section


CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Machine:
    """The hardware and the packages of a machine.

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
        """Facts of a GPU; None where they aren't known, and for a CPU."""
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


logger = logging.getLogger(__name__)

ONNX = "onnx"
ON_GPUS_ALONE = {"engine": ("tensorrt_llm", "vllm"), "backend": ("tensorrt",), "kernels": ("fused",)}
"""Values that need a GPU, by field."""


def require_gpus(sections: Mapping[str, Section], found: Obstacle | None) -> None:
    """Refuse settings that ask for a GPU which can't be used.

    Args:
        found: what keeps torch from the GPU of this machine.

    Raises:
        InvalidInput: something does, and a setting asks for a GPU.
    """
    if found is None:
        return
    for name, section in sections.items():
        for field, text in _asked(section.placeholders()):
            raise InvalidInput(f"{name}.{field}", text, f"no GPU can be used: {found.text}")


def tell_unused_gpu(sections: Mapping[str, Section], found: Obstacle | None) -> None:
    """Log why networks that would be on the GPU of this machine are not, unless settings name the CPU."""
    if any(_is_open(section.placeholders()) for section in sections.values()):
        tell_obstacle(found)


def check_at_start(section: Section) -> None:
    """Check a model's device before it loads: the driver may be another than when stage 2 chose its device.

    Raises:
        InvalidInput: as :func:`require_gpus`.
    """
    found = obstacle()
    require_gpus({section.name: section}, found)
    tell_obstacle(found)


def tell_obstacle(found: Obstacle | None) -> None:
    """A warning, or a line of information where somebody chose it."""
    if found is not None:
        level = logging.INFO if found.chosen else logging.WARNING
        logger.log(level, "the CPU computes, not the GPU: %s", found.text)


def _is_open(texts: Mapping[str, str]) -> bool:
    """Whether a network's device follows the machine; ONNX Runtime has a CPU alone."""
    return texts.get("device") == AUTO and ONNX not in (texts.get("engine"), texts.get("backend"))


def _asked(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if texts.get("device", "").startswith(CUDA):
        yield "device", texts["device"]
    for field, values in ON_GPUS_ALONE.items():
        if texts.get(field) in values:
            yield field, texts[field]
