"""A driver and a torch of any version, for processes that look for them: there is no GPU behind them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

LIBRARY = """
int cuDriverGetVersion(int *version) {{ *version = {version}; return 0; }}
int cuInit(unsigned flags) {{ return 100; }}
"""
TORCH = """
__version__ = {version!r}
class cuda:
    is_available = staticmethod(lambda: {available})
    get_device_capability = staticmethod(lambda: {capability})
    get_arch_list = staticmethod(lambda: {targets})
    get_device_name = staticmethod(lambda: "NVIDIA Fake")
    @staticmethod
    def init():
        raise RuntimeError("No CUDA GPUs are available")
"""
VERSION = """
__version__ = {version!r}
cuda: Optional[str] = {cuda!r}
"""
TARGETS = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
"""That torch has code for."""


def fake_driver(folder: Path, cuda: tuple[int, int], name: str = "570.133.20") -> dict[str, str]:
    """Variables of a process that finds this driver: its library, and what nvidia-smi says."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "cuda.c"
    source.write_text(LIBRARY.format(version=cuda[0] * 1000 + cuda[1] * 10))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho {name}\n")
    program.chmod(0o755)
    return {"LD_LIBRARY_PATH": str(folder), "PATH": f"{folder}:/usr/bin:/bin"}


def fake_torch(
    folder: Path,
    version: str = "2.13.0",
    cuda: str | None = "13.0",
    available: bool = False,
    capability: tuple[int, int] = (8, 9),
) -> Path:
    """A directory for ``PYTHONPATH`` with a torch that only tells about itself."""
    package = folder / "torch"
    package.mkdir(parents=True)
    facts = {"version": version, "available": available, "capability": capability, "targets": TARGETS}
    (package / "__init__.py").write_text(TORCH.format(**facts))
    (package / "version.py").write_text(VERSION.format(version=version, cuda=cuda))
    return folder
