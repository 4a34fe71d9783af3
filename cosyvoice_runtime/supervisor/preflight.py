"""The installed tritonserver, its ports, and the checks before a start."""

from __future__ import annotations

import errno
import importlib.util
import os
import random
import re
import sys
import sysconfig
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.process.file_limit import file_limit_problem
from cosyvoice_runtime.process.listening import bound, local_url, own_addresses, with_port
from cosyvoice_runtime.process.spans import check_spans
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.settings.cosyvoice2 import NO_BUCKET
from cosyvoice_runtime.settings.repository import TemplateError, placeholders, read_parameter
from cosyvoice_runtime.supervisor.errors import PreflightError
from cosyvoice_runtime.voice.opening import open_bucket

CONTAINER_BINARY = Path("/opt/tritonserver/bin/tritonserver")
QUEUES_VARIABLE, QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", 32
"""The queues between a process and its GPU, at CUDA's maximum. Streams that share a queue wait for each
other; the default is 8, and the engine has some twenty streams."""
PYTHON = Path(sys.executable)
"""The interpreter's path is not resolved, because a virtual environment is found by it."""
PYTHON_VERSION = "{}.{}".format(*sys.version_info)
LIBRARY = f"libpython{PYTHON_VERSION}.so.1.0"
"""The library to which the model processes of nvidia-pytriton link."""
FREE_PORTS = range(20_000, 30_000)
"""The range of free ports: below the ports of outgoing connections (Linux: 32768 to 60999), which could take
one before the server does."""
SHARED_MEMORY = Path("/dev/shm")
NEEDED_SHARED_MIB = 64
"""The free space in shared memory below which the server does not start."""
NEEDED_FILES = 512
"""The open files of tritonserver with its models, and of each gateway with few clients."""
CODE = Path(__file__).resolve().parents[2]
TRITON_FOLDER = Path("/tmp")
"""Triton's python backend makes a folder here, whatever TMPDIR says, and ends the server on failure."""
MODEL_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
"""The valid names of model folders, which Triton's python backend writes into a shell command."""


class Triton:
    """An installed tritonserver, whose models run in this interpreter; by default that of NVIDIA's
    container."""

    def __init__(self, binary: Path) -> None:
        self.binary = binary
        self.origin = f"tritonserver of the container, {binary}"

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
        self._root = package / "tritonserver"
        super().__init__(self._root / "bin" / "tritonserver")
        self.origin = f"tritonserver of the package nvidia-pytriton, {self.binary}, Python {PYTHON_VERSION}"
        self._stub = self._root / "python_backend_stubs" / PYTHON_VERSION / "triton_python_backend_stub"

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
    """The server of this interpreter, else that of the container; a PreflightError without one."""
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


@dataclass(frozen=True)
class ServerPorts:
    """The addresses on which a server listens and by which it is reached locally.

    Attributes:
        host: the host of the settings.
        addresses: addresses of the host; every port is open at each of them.
    """

    host: str
    http: int
    grpc: int
    metrics: int
    model_metrics: int
    addresses: tuple[str, ...] = ()

    @classmethod
    def choose(cls, settings: ServerSettings, besides: Collection[int] = ()) -> ServerPorts:
        """Choose the ports of the settings, with a free one for every 0.

        Args:
            besides: ports that are free, and not to be chosen.

        Raises:
            PreflightError: the host leads to no address of this machine.
            OSError: no port is free.
        """
        try:
            addresses = own_addresses(settings.host, "server.host")
        except InvalidInput as error:
            raise PreflightError([str(error)]) from error
        ports = [settings.http_port, settings.grpc_port, settings.metrics_port, settings.model_metrics_port]
        # Each server tries the ports in a random order, because several may choose at the same time.
        candidates = random.SystemRandom().sample(FREE_PORTS, len(FREE_PORTS))
        taken = {*ports, *besides}
        free = (port for port in candidates if port not in taken and _obstacle(addresses, port) is None)
        try:
            http, grpc, metrics, model_metrics = [port or next(free) for port in ports]
        except StopIteration:
            text = f"no port from {FREE_PORTS[0]} to {FREE_PORTS[-1]} is free"
            raise OSError(errno.EADDRINUSE, text) from None
        return cls(settings.host, http, grpc, metrics, model_metrics, addresses)

    @property
    def problems(self) -> list[str]:
        """The reasons why the server can't listen, one sentence each."""
        fields = ("http", "grpc", "metrics", "model_metrics")
        named = {f"{name}_port": getattr(self, name) for name in fields}
        if len(set(named.values())) < len(named):
            return [f"{', '.join(named)} must differ, they are {list(named.values())}"]
        return [
            f"{name} {port} on {self.host} can't be used ({reason}): stop its user or set {name}"
            for name, port in named.items()
            if (reason := _obstacle(self.addresses, port))
        ]

    def listening(self, port: int) -> str:
        """The ``host:port`` to listen on."""
        return with_port(self.host, port)

    def url(self, port: int) -> str:
        """The ``host:port`` for clients on this machine."""
        return local_url(self.host, port)


def _obstacle(addresses: tuple[str, ...], port: int) -> str | None:
    """The reason why a port can't be used at all of these addresses."""
    try:
        for address in addresses:
            bound(address, port).close()
    except OSError as error:
        return error.strerror
    return None


def check(triton: Triton, ports: ServerPorts, settings: ServerSettings, repository: Path) -> None:
    """Check that the server can start and would not hang, crash or lose data; a PreflightError has the
    problems."""
    problems = [
        *triton.problems(),
        *_shared_memory_problems(),
        *filter(None, [file_limit_problem(NEEDED_FILES)]),
        *ports.problems,
        *repository_problems(repository),
        *code_problems(PYTHON),
        *not_writable("server.log_file", settings.log_file.absolute().parent),
        *not_writable("tritonserver", TRITON_FOLDER),
        *span_problems(),
    ]
    if problems:
        raise PreflightError(problems)


def models_of(repository: Path) -> list[str]:
    """The names of the models in a repository."""
    return sorted(path.parent.name for path in repository.glob("*/config.pbtxt"))


def checkpoint_of(repository: Path) -> str:
    """The checkpoint directory of a repository; empty if no model names one."""
    named = (read_parameter(repository / name, "checkpoint_dir") for name in models_of(repository))
    return next(filter(None, named), "")


def repository_problems(repository: Path) -> list[str]:
    models = [repository / name for name in models_of(repository)]
    if not models:
        return [f"{repository} holds no model: render the model repository first"]
    return [problem for model in models for problem in _model_problems(model)]


def not_writable(user: str, folder: Path) -> list[str]:
    """A sentence if nothing can be written to a folder, or to the folder in which it will be made.

    Args:
        user: the setting, or the program, that writes to it.
    """
    existing = existing_folder(folder)
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return []
    remedy = f"mount a volume or a tmpfs there that user {os.geteuid()} may write to"
    return [f"{user} writes to {folder}, which can't be written: {remedy}, or name another place"]


def existing_folder(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    absolute = folder.absolute()
    return next(each for each in (absolute, *absolute.parents) if each.exists())


def code_problems(executable: Path) -> list[str]:
    """The reasons, a sentence each, why the models' processes would not find an interpreter and this code.

    Python in them reads paths as ASCII, whatever the locale, and finds the interpreter by PATH.
    """
    problems = []
    if not str(CODE).isascii():
        problems.append(f"{CODE}: the code has to lie under a path in ASCII")
    if not str(executable).isascii() or os.pathsep in str(executable):
        problems.append(
            f"{executable}: the interpreter has to lie under a path in ASCII without '{os.pathsep}'"
        )
    return problems


def _model_problems(model: Path) -> list[str]:
    if not MODEL_NAME.fullmatch(model.name):
        return [f"{str(model)!r}: a model's name has letters, digits, '.', '_' and '-' of ASCII alone"]
    configuration = model / "config.pbtxt"
    unfilled = sorted(placeholders(configuration.read_text(encoding="utf-8")))
    if unfilled:
        return [f"{configuration} is a template still (${{{unfilled[0]}}}): render the model repository"]
    problems = []
    if not any(entry.name.isdecimal() for entry in model.iterdir() if entry.is_dir()):
        problems.append(f"{model} has no version directory such as {model.name}/1")
    try:
        checkpoint, voices = read_parameter(model, "checkpoint_dir"), read_parameter(model, "voices_dir")
        bucket = read_parameter(model, "voices_url")
    except TemplateError as error:
        return [*problems, str(error)]
    if checkpoint and not Path(checkpoint).is_dir():
        problems.append(f"{model.name}: its checkpoint_dir {checkpoint} is no directory")
    problems += not_writable(f"{model.name}.voices_dir", Path(voices)) if voices else []
    return problems + (bucket_problems(bucket) if bucket and bucket != NO_BUCKET else [])


def bucket_problems(url: str) -> list[str]:
    """The reason why voices can't be kept in this bucket."""
    try:
        open_bucket(url, check=True)
    except InvalidInput as error:
        return [str(error)]
    return []


def span_problems() -> list[str]:
    """The reason why spans that are asked for can't be sent."""
    try:
        check_spans()
    except InvalidInput as error:
        return [str(error)]
    return []


def free_shared_mib() -> int:
    status = os.statvfs(SHARED_MEMORY)
    return status.f_bavail * status.f_frsize // 2**20


def _shared_memory_problems() -> list[str]:
    if not SHARED_MEMORY.is_dir():
        return [f"{SHARED_MEMORY} is missing: the server shares memory with its models there"]
    if problems := not_writable("the server", SHARED_MEMORY):
        return problems
    free = free_shared_mib()
    if free < NEEDED_SHARED_MIB:
        needed = f"{free} MiB free and {NEEDED_SHARED_MIB} are needed"
        return [f"{SHARED_MEMORY} has {needed}: enlarge it (docker: --shm-size)"]
    return []
