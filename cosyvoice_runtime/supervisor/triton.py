"""The installed tritonserver, whose models run in this interpreter."""

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
"""The queues between a process and its GPU, at CUDA's maximum. Streams that share a queue wait for each
other; the default is 8, and the engine has some twenty streams."""
PYTHON = Path(sys.executable)
"""The interpreter's path is not resolved, because a virtual environment is found by it."""
PYTHON_VERSION = "{}.{}".format(*sys.version_info)
LIBRARY = f"libpython{PYTHON_VERSION}.so.1.0"
"""The library to which the model processes of nvidia-pytriton link."""


class Triton:
    """An installed tritonserver, by default that of NVIDIA's container."""

    def __init__(self, binary: Path) -> None:
        self.binary = binary

    @property
    def origin(self) -> str:
        """The kind of this server, for the log."""
        return f"tritonserver of the container, {self.binary}"

    def problems(self) -> list[str]:
        """The reasons why it can't run, one sentence each."""
        return []

    def arguments(self, run_dir: Path) -> list[str]:  # noqa: ARG002
        """The arguments for this installation; files may be written to ``run_dir``."""
        return []

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """The environment in which the models use the first interpreter on PATH, not one named by PYTHON*."""
        path = _prepend(PYTHON.parent, inherited.get("PATH", os.defpath))
        return {QUEUES_VARIABLE: str(QUEUES), **inherited, "PATH": path}


class WheelTriton(Triton):
    """The server of the Python package nvidia-pytriton: CPU only, python backend only."""

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
        # Its python backend predates python_backend#384: with numpy 2 outputs arrive empty without an error.
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
            # Otherwise a virtual environment may silently load another patch release's library.
            environment["LD_LIBRARY_PATH"] = _prepend(folder, inherited.get("LD_LIBRARY_PATH", ""))
        return environment


def find_triton(container_binary: Path = CONTAINER_BINARY) -> Triton:
    """The server installed with this interpreter, else that of the container.

    Raises:
        PreflightError: no server is installed.
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
