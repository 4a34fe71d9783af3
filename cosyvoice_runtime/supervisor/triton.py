"""The tritonserver that is installed, the Python that its models run in, and the GPU that they could use."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cosyvoice_runtime.gpu.nvidia import KERNEL_MODULE, Obstacle, has_driver
from cosyvoice_runtime.settings.gpu_asked import tell_obstacle
from cosyvoice_runtime.settings.model import CUDA
from cosyvoice_runtime.settings.rendered import read_parameters
from cosyvoice_runtime.settings.tensorrt_llm import TensorrtLlmSettings
from cosyvoice_runtime.settings.token2wav import Token2WavSettings
from cosyvoice_runtime.supervisor.errors import PreflightError

CONTAINER_BINARY = Path("/opt/tritonserver/bin/tritonserver")
QUEUES_VARIABLE, QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", 32
"""Queues between a process and its GPU, the most that CUDA has. By default there are 8, and streams that
share one wait for each other: token2wav and the speech LM have some twenty."""
NETWORKS = (TensorrtLlmSettings.name, Token2WavSettings.name)
ANSWER_S = 120.0
"""Longest wait for an interpreter, which may import torch and ask the driver."""
QUESTIONS = """
import importlib.metadata, importlib.util, json, sys, sysconfig
def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
spec = importlib.util.find_spec("pytriton")
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "library_folders": [sysconfig.get_config_var("LIBDIR"), sys.base_prefix + "/lib"],
    "numpy": version("numpy"),
    "pytriton": list(spec.submodule_search_locations)[0] if spec else None,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """The Python that runs the models.

    Attributes:
        executable: as given, not resolved: a virtual environment is found by this path.
        version: ``3.11``.
        library: its libpython, which the model processes link to; None when there is none.
        numpy: version of numpy, None when not installed.
        pytriton: the installed package that brings a tritonserver, None when not installed.
    """

    executable: Path
    version: str
    library: Path | None
    numpy: str | None
    pytriton: Path | None

    @property
    def library_name(self) -> str:
        return f"libpython{self.version}.so.1.0"

    @classmethod
    def inspect(cls, executable: Path) -> Interpreter:
        """Ask an interpreter about itself.

        Raises:
            PreflightError: it does not run.
        """
        try:
            facts = json.loads(_output([executable, "-I", "-c", QUESTIONS]))
        except (OSError, subprocess.SubprocessError) as error:
            raise PreflightError([f"{executable} is no working Python ({error})"]) from error
        name = f"libpython{facts['version']}.so.1.0"
        libraries = [Path(folder, name) for folder in facts["library_folders"] if folder]
        return cls(
            executable=executable,
            version=facts["version"],
            library=next((path for path in libraries if path.exists()), None),
            numpy=facts["numpy"],
            pytriton=Path(facts["pytriton"]) if facts["pytriton"] else None,
        )


@dataclass(frozen=True)
class Triton:
    """A tritonserver together with its models' Python; as it is here, that of NVIDIA's container."""

    binary: Path
    interpreter: Interpreter

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
        return {QUEUES_VARIABLE: str(QUEUES), **inherited} | {
            "PATH": _prepend(self.interpreter.executable.parent, inherited.get("PATH", os.defpath))
        }


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
        backend, bundled = run_dir / "backends" / "python", self.root / "backends" / "python"
        backend.mkdir(parents=True)
        files = bundled / "libtriton_python.so", bundled / "triton_python_backend_utils.py", self.stub
        for source in files:
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
        return Triton(container_binary, interpreter)
    lacking = f"{interpreter.executable} lacks nvidia-pytriton and {container_binary} is missing"
    raise PreflightError([f"there is no tritonserver: {lacking}"])


def tell_unused_gpu(repository: Path, python: Path) -> None:
    """Log what keeps torch from the GPU where all networks of a repository are on the CPU.

    A network that is on a GPU tells by itself why it can't be, and does not start.

    Args:
        python: interpreter of the models, which is asked: torch would stay in this process.
    """
    here = has_driver() or KERNEL_MODULE.exists()
    if here and not any(_is_on_gpu(repository / model) for model in NETWORKS):
        tell_obstacle(_obstacle(python))


def _is_on_gpu(model: Path) -> bool:
    parameters = read_parameters(model) if model.exists() else {}
    return parameters.get("device", {}).get("string_value", "").startswith(CUDA)


def _obstacle(python: Path) -> Obstacle | None:
    try:
        facts = json.loads(_output([python, "-m", "cosyvoice_runtime.gpu.nvidia"]))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Obstacle(f"NVIDIA's driver is here, but {python} could not be asked about it ({error})")
    return facts and Obstacle(**facts)


def _output(command: list[str | Path]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=ANSWER_S).stdout


def _prepend(folder: Path, search_path: str) -> str:
    return os.pathsep.join(filter(None, [str(folder.absolute()), search_path]))
