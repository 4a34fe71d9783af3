"""Facts of NVIDIA's driver and of the installed torch, and whether torch can use the driver.

``python -m cosyvoice_runtime.gpu.nvidia`` prints what keeps torch from the GPU as JSON, or ``null``.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cosyvoice_runtime.errors import EngineFileError

if TYPE_CHECKING:
    import torch

LIBRARY = "libcuda.so.1"
KERNEL_MODULE = Path("/proc/driver/nvidia/version")
DEVICES, NODES = Path("/dev"), ("nvidia[0-9]*", "dxg")
"""The devices that a process opens to use a GPU, on Linux and in Windows Subsystem for Linux."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}
"""The driver branch that runs all releases of a CUDA major version (NVIDIA, "CUDA Compatibility", minor
version compatibility)."""
KERNELS_FROM = (8, 0)
"""The compute capability from which the kernels run: older GPUs have no bfloat16."""
SMI_S = 20.0
"""The longest wait for ``nvidia-smi``, which a hanging driver blocks."""

Version = tuple[int, int]


class TorchBuild(NamedTuple):
    """The installed torch: its version with the build's label, and its CUDA version, None for a CPU build."""

    version: str
    cuda: Version | None


class GpuFacts(NamedTuple):
    """One GPU's memory in GiB and its compute capability."""

    gib: float
    capability: Version


class Gpu(NamedTuple):
    """Name of a GPU as CUDA gives it, and compute capability (``"9.0"``)."""

    name: str
    compute_capability: str


class GpuLimits(NamedTuple):
    """The limits by which kernels and captured calls are sized.

    Attributes:
        shared_bytes: most shared memory of a program.
        multiprocessors: their number.
        total_bytes: memory.
    """

    capability: Version
    shared_bytes: int
    multiprocessors: int
    total_bytes: int


class Obstacle(NamedTuple):
    """The reason why torch can't use the GPU of a machine with NVIDIA's driver.

    Attributes:
        text: the facts and a remedy.
        chosen: whether the state looks intended, and not like a mistake.
    """

    text: str
    chosen: bool = False


def has_driver() -> bool:
    """Whether this process can load NVIDIA's driver."""
    return cuda_of_driver() is not None


def cuda_of_driver() -> Version | None:
    """The CUDA version that the local ``libcuda`` supports; None without it."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    version = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    return version.value // 1000, version.value % 1000 // 10


def torch_build() -> TorchBuild | None:
    """The installed torch, read without importing it, which takes seconds; None if there is none."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    facts = dict(re.findall(r"^(__version__|cuda)\b[^=\n]*= '([^']*)'", text, re.MULTILINE))
    return TorchBuild(facts["__version__"], _version(facts["cuda"]) if "cuda" in facts else None)


def obstacle(environment: Mapping[str, str] = os.environ) -> Obstacle | None:
    """The obstacle as far as it is known without opening the GPU; None without one, or without a driver."""
    cuda = cuda_of_driver()
    if cuda is None and not KERNEL_MODULE.exists():
        return None
    build, visible = torch_build(), environment.get(VISIBLE)
    if build is None:
        return Obstacle("torch is not installed (scripts/environment.py --torch)", chosen=True)
    if visible is not None and visible.strip() in ("", "-1"):
        return Obstacle(f"{VISIBLE}={visible} hides every GPU", chosen=True)
    if build.cuda is None:
        return Obstacle(f"torch {build.version} is a build for CPUs; {_HOW_TO_GET_CUDA}")
    if cuda is None:
        return Obstacle(f"NVIDIA's driver is here but not its {LIBRARY}; {_CONTAINER}")
    if cuda < (build.cuda[0], 0):
        return Obstacle(_too_old(cuda, build.version, build.cuda))
    return None


def obstacle_to_torch() -> Obstacle | None:
    """The obstacle by :func:`obstacle`, then by asking torch, which opens the GPU; None without a driver."""
    known = obstacle()
    if known is not None or cuda_of_driver() is None:
        return known
    try:
        import torch
    except (ImportError, OSError) as error:  # A CUDA library raises OSError.
        return Obstacle(f"torch can't be imported ({error})")
    if not torch.cuda.is_available():
        reachable = any(node for pattern in NODES for node in DEVICES.glob(pattern))
        hint = "" if reachable else f"; none is in {DEVICES}: {_CONTAINER}"
        return Obstacle(f"torch {torch.__version__} finds no GPU ({_complaint_of_torch()}){hint}")
    capability = torch.cuda.get_device_capability()
    targets = torch.cuda.get_arch_list()
    if targets and not any(_runs(target, capability) for target in targets):
        limit = f"torch {torch.__version__} has code for {', '.join(targets)}"
        name = torch.cuda.get_device_name()
        return Obstacle(f"{name} has compute capability {_dotted(capability)}, {limit}; {_OLDER_BUILD}")
    return None


def gpus_of_torch() -> tuple[GpuFacts, ...]:
    """All GPUs that torch can use, by number."""
    import torch

    every = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return tuple(GpuFacts(each.total_memory / 2**30, (each.major, each.minor)) for each in every)


MAJOR, MINOR, MULTIPROCESSORS, SHARED_BYTES = 75, 76, 16, 97
"""Numbers of a device's attributes (CUDA Driver API, ``CUdevice_attribute``)."""


def gpu_limits(number: int) -> GpuLimits:
    """Limits of a GPU, which the driver tells without opening it; an EngineFileError without one."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise EngineFileError(f"this process sees no GPU: {error}") from error
    device, total, found = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_int()

    def asked(name: str, *arguments: object) -> None:
        if status := getattr(library, name)(*arguments):
            raise EngineFileError(f"{name} of NVIDIA's driver fails with {status}")

    def attribute(which: int) -> int:
        asked("cuDeviceGetAttribute", ctypes.byref(found), which, device)
        return found.value

    asked("cuInit", 0)
    asked("cuDeviceGet", ctypes.byref(device), number)
    asked("cuDeviceTotalMem_v2", ctypes.byref(total), device)
    return GpuLimits(
        (attribute(MAJOR), attribute(MINOR)), attribute(SHARED_BYTES), attribute(MULTIPROCESSORS), total.value
    )


def present_gpu(device: torch.device | int = 0) -> Gpu:
    """A GPU that this process sees; an EngineFileError without one."""
    import torch

    if not torch.cuda.is_available():
        raise EngineFileError("this process sees no GPU")
    properties = torch.cuda.get_device_properties(device)
    return Gpu(properties.name, f"{properties.major}.{properties.minor}")


def driver_name() -> str:
    """The driver's version; empty if unknown."""
    if KERNEL_MODULE.exists():
        found = re.search(r"Module.*?\s(\d+\.[\d.]+)", KERNEL_MODULE.read_text(encoding="utf-8"))
        if found:
            return found[1]
    return _smi("--query-gpu=driver_version", "--format=csv,noheader").partition("\n")[0].strip()


LISTED = re.compile(r"^(?:GPU (\d+): .*|\s+MIG .*)\(UUID: ((?:GPU|MIG)-[\w/-]+)\)", re.MULTILINE)
"""A line of ``nvidia-smi -L``: a GPU, or below it a part of a GPU that is divided for good (MIG)."""


ENTRY = re.compile(r"\d+|(?:GPU|MIG)-[\w/-]+")
"""A GPU in ``CUDA_VISIBLE_DEVICES``."""


class VisibleGpu(NamedTuple):
    """A GPU's number, empty for a part of one, and its UUID as ``CUDA_VISIBLE_DEVICES`` takes it."""

    number: str
    uuid: str


def visible_gpus(environment: Mapping[str, str] = os.environ) -> list[VisibleGpu]:
    """The GPUs that a process may use, or their parts; none if the driver does not list them.

    Where ``CUDA_VISIBLE_DEVICES`` is set, they are its entries; CUDA hides what follows one that is no GPU.
    """
    chosen = environment.get(VISIBLE)
    if chosen is not None:
        entries = takewhile(ENTRY.fullmatch, (entry.strip() for entry in chosen.split(",")))
        return [VisibleGpu(entry, entry) for entry in entries]
    return gpus_in(_smi("-L"))


def gpus_in(listing: str) -> list[VisibleGpu]:
    """The GPUs in the output of ``nvidia-smi -L``; one that is divided stands for its parts."""
    found: list[VisibleGpu] = []
    for number, uuid in LISTED.findall(listing):
        if found and found[-1].number and not number:
            found.pop()  # It is divided, and this is its first part.
        found.append(VisibleGpu(number, uuid))
    return found


def _smi(*arguments: str) -> str:
    """The output of ``nvidia-smi``; empty where it can't be asked."""
    try:
        told = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=SMI_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout if not told.returncode else ""


_OLDER_BUILD = "the build of torch for CUDA 12.6 may do (docs/environment.md, GPUs)"
_HOW_TO_GET_CUDA = "the one on PyPI has CUDA (docs/environment.md, GPUs)"
_CONTAINER = "a container is given GPUs by --gpus all"


def _too_old(supported: Version, torch: str, cuda: Version) -> str:
    oldest = OLDEST_DRIVERS.get(cuda[0])
    newer = f"install driver {oldest} or newer" if oldest else "install a newer driver"
    driver = f"NVIDIA's driver {driver_name()}".rstrip()
    facts = f"{driver} supports CUDA {_dotted(supported)}, torch {torch} needs CUDA {_dotted(cuda)}"
    older = f", or {_OLDER_BUILD}" if supported[0] == 12 else ""
    return f"{facts}: {newer}{older}"


def _complaint_of_torch() -> str:
    import torch

    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0]
    return f"{VISIBLE}={os.environ.get(VISIBLE, '')}"


def _runs(target: str, capability: Sequence[int]) -> bool:
    """Whether code for ``sm_86`` or ``compute_90`` runs on a GPU; machine code runs within its major
    version."""
    kind, _, number = target.partition("_")
    major, minor = divmod(int(re.sub(r"\D", "", number)), 10)
    newer = (major, minor) <= tuple(capability)
    return newer and (kind == "compute" or major == capability[0])


def _version(text: str) -> Version:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def main() -> int:
    found = obstacle_to_torch()
    print(json.dumps(found and found._asdict()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
