"""Where tritonserver comes from, and how it is called from there."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cosyvoice_runtime.supervisor.errors import PreflightError
from cosyvoice_runtime.supervisor.interpreter import Interpreter

CONTAINER_BINARY = Path("/opt/tritonserver/bin/tritonserver")
QUEUES_VARIABLE, QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", 32
"""Queues between a process and its GPU, the most that CUDA has. By default there are 8, and streams that
share one wait for each other: token2wav and the speech LM have some twenty."""


@dataclass(frozen=True)
class Triton(ABC):
    """An installed tritonserver together with the Python that its models run in."""

    binary: Path
    interpreter: Interpreter

    @property
    @abstractmethod
    def origin(self) -> str:
        """Which server this is, for the log."""

    @abstractmethod
    def problems(self) -> list[str]:
        """Why it can't run, one sentence each."""

    @abstractmethod
    def arguments(self, run_dir: Path) -> list[str]:
        """Arguments that depend on the installation; may write into ``run_dir``."""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """The models run in the interpreter that stands first on PATH, not in one named by PYTHON*."""
        return {QUEUES_VARIABLE: str(QUEUES), **inherited} | {
            "PATH": _prepend(self.interpreter.executable.parent, inherited.get("PATH", os.defpath))
        }


class ContainerTriton(Triton):
    """The server of NVIDIA's container, which brings its own backends and Python."""

    @property
    def origin(self) -> str:
        return f"tritonserver of the container, {self.binary}"

    def problems(self) -> list[str]:
        return []

    def arguments(self, run_dir: Path) -> list[str]:  # noqa: ARG002
        return []


class WheelTriton(Triton):
    """The server inside the Python package nvidia-pytriton: CPU only, python backend only."""

    @property
    def origin(self) -> str:
        return (
            f"tritonserver of the package nvidia-pytriton, {self.binary}, Python {self.interpreter.version}"
        )

    @property
    def root(self) -> Path:
        return self.binary.parent.parent

    @property
    def stub(self) -> Path:
        return self.root / "python_backend_stubs" / self.interpreter.version / "triton_python_backend_stub"

    def problems(self) -> list[str]:
        python = self.interpreter
        problems = []
        if not self.stub.exists():
            have = sorted(folder.name for folder in self.stub.parent.parent.iterdir())
            problems.append(f"nvidia-pytriton has no Python {python.version}, only {', '.join(have)}")
        if python.library is None:
            problems.append(
                f"{python.library_name} is missing, without which the server hangs: install the package "
                f"libpython{python.version} or use a Python built with --enable-shared"
            )
        # Its python backend was built before python_backend#384: with numpy 2 outputs arrive empty, silently.
        if python.numpy is None or not python.numpy.startswith("1."):
            found = f"{python.executable} has {python.numpy or 'none'}"
            problems.append(f"numpy 1.26 is needed, {found}: with numpy 2 this server loses data silently")
        return problems

    def arguments(self, run_dir: Path) -> list[str]:
        backend = run_dir / "backends" / "python"
        backend.mkdir(parents=True)
        bundled = self.root / "backends" / "python"
        for source in (
            bundled / "libtriton_python.so",
            bundled / "triton_python_backend_utils.py",
            self.stub,
        ):
            (backend / source.name).symlink_to(source)
        return [
            f"--backend-directory={backend.parent}",
            f"--cache-directory={self.root / 'caches'}",
            "--allow-gpu-metrics=false",
        ]

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        environment = super().environment(inherited)
        if self.interpreter.library is not None:
            # Otherwise a virtual environment may get another patch release's library, unnoticed.
            folder = self.interpreter.library.parent
            environment["LD_LIBRARY_PATH"] = _prepend(folder, inherited.get("LD_LIBRARY_PATH", ""))
        return environment


def find_triton(interpreter: Interpreter, container_binary: Path = CONTAINER_BINARY) -> Triton:
    """The server installed beside the interpreter, else the container's.

    Raises:
        PreflightError: there is neither.
    """
    if interpreter.pytriton is not None:
        return WheelTriton(interpreter.pytriton / "tritonserver" / "bin" / "tritonserver", interpreter)
    if container_binary.exists():
        return ContainerTriton(container_binary, interpreter)
    lacking = f"{interpreter.executable} lacks nvidia-pytriton and {container_binary} is missing"
    raise PreflightError([f"there is no tritonserver: {lacking}"])


def _prepend(folder: Path, search_path: str) -> str:
    return os.pathsep.join(filter(None, [str(folder.absolute()), search_path]))
