"""The tritonserver that is installed, beside this interpreter, in which its models run too."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cosyvoice_runtime.supervisor.errors import PreflightError

CONTAINER_BINARY = Path("/opt/tritonserver/bin/tritonserver")
QUEUES_VARIABLE, QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", 32
"""Queues between a process and its GPU, the most that CUDA has. By default there are 8, and streams that
share one wait for each other: token2wav and the speech LM have some twenty."""
PYTHON = Path(sys.executable)
"""As it was called, not resolved: a virtual environment is found by this path."""
PYTHON_VERSION = "{}.{}".format(*sys.version_info)
LIBRARY = f"libpython{PYTHON_VERSION}.so.1.0"
"""What the models' processes of nvidia-pytriton link to."""


class Triton:
    """A tritonserver; as it is here, that of NVIDIA's container."""

    def __init__(self, binary: Path) -> None:
        self.binary = binary

    @property
    def origin(self) -> str:
        """Which server this is, for the log."""
        return f"tritonserver of the container, {self.binary}"

    def problems(self) -> list[str]:
        """Why it can't run, one sentence each."""
        return []

    def arguments(self, run_dir: Path) -> list[str]:  # noqa: ARG002
        """Arguments that depend on the installation; may write into ``run_dir``."""
        return []

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """The models run in the interpreter that stands first on PATH, not in one named by PYTHON*."""
        path = _prepend(PYTHON.parent, inherited.get("PATH", os.defpath))
        return {QUEUES_VARIABLE: str(QUEUES), **inherited, "PATH": path}


class WheelTriton(Triton):
    """The server inside the Python package nvidia-pytriton: CPU only, python backend only."""

    def __init__(self, package: Path) -> None:
        super().__init__(package / "tritonserver" / "bin" / "tritonserver")
        self._root = package / "tritonserver"
        self._stub = self._root / "python_backend_stubs" / PYTHON_VERSION / "triton_python_backend_stub"

    @property
    def origin(self) -> str:
        return f"tritonserver of the package nvidia-pytriton, {self.binary}, Python {PYTHON_VERSION}"

    def problems(self) -> list[str]:
        problems = []
        if not self._stub.exists():
            have = sorted(folder.name for folder in self._stub.parent.parent.iterdir())
            problems.append(f"nvidia-pytriton has no Python {PYTHON_VERSION}, only {', '.join(have)}")
        if _library_folder() is None:
            problems.append(
                f"{LIBRARY} is missing, without which the server hangs: install the package "
                f"libpython{PYTHON_VERSION} or use a Python built with --enable-shared"
            )
        # Its python backend was built before python_backend#384: with numpy 2 outputs arrive empty, silently.
        numpy = _version("numpy")
        if not numpy.startswith("1."):
            found = f"{PYTHON} has {numpy}"
            problems.append(f"numpy 1.26 is needed, {found}: with numpy 2 this server loses data silently")
        return problems

    def arguments(self, run_dir: Path) -> list[str]:
        backend, bundled = run_dir / "backends" / "python", self._root / "backends" / "python"
        backend.mkdir(parents=True)
        files = bundled / "libtriton_python.so", bundled / "triton_python_backend_utils.py", self._stub
        for source in files:
            (backend / source.name).symlink_to(source)
        return [
            f"--backend-directory={backend.parent}",
            f"--cache-directory={self._root / 'caches'}",
            "--allow-gpu-metrics=false",
        ]

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        environment = super().environment(inherited)
        if folder := _library_folder():
            # Otherwise a virtual environment may get another patch release's library, unnoticed.
            environment["LD_LIBRARY_PATH"] = _prepend(folder, inherited.get("LD_LIBRARY_PATH", ""))
        return environment


def find_triton(container_binary: Path = CONTAINER_BINARY) -> Triton:
    """The server installed beside this interpreter, else the container's.

    Raises:
        PreflightError: there is neither.
    """
    package = importlib.util.find_spec("pytriton")
    if package is not None and package.submodule_search_locations:
        return WheelTriton(Path(package.submodule_search_locations[0]))
    if container_binary.exists():
        return Triton(container_binary)
    lacking = f"{PYTHON} lacks nvidia-pytriton and {container_binary} is missing"
    raise PreflightError([f"there is no tritonserver: {lacking}"])


def _library_folder() -> Path | None:
    folders = filter(None, (sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib"))
    return next((Path(folder) for folder in folders if Path(folder, LIBRARY).exists()), None)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _prepend(folder: Path, search_path: str) -> str:
    return os.pathsep.join(filter(None, [str(folder.absolute()), search_path]))
