"""The checks before a start, for what would make the server hang, crash or lose data."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cosyvoice_runtime.process.file_limit import file_limit_problem
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.settings.repository import TemplateError, placeholders, read_parameter
from cosyvoice_runtime.supervisor import shared_memory
from cosyvoice_runtime.supervisor.errors import PreflightError
from cosyvoice_runtime.supervisor.server_ports import ServerPorts
from cosyvoice_runtime.supervisor.triton import PYTHON, Triton

CODE = Path(__file__).resolve().parents[2]
TRITON_FOLDER = Path("/tmp")
"""Triton's python backend makes a folder here, whatever TMPDIR says, and ends the server on failure."""
MODEL_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
"""The valid names of model folders, which Triton's python backend writes into a shell command."""
NEEDED_SHARED_MIB = 64
"""The free space in shared memory below which the server does not start."""
NEEDED_FILES = 512
"""The open files of tritonserver with its models, and of each gateway with few clients."""


def check(triton: Triton, ports: ServerPorts, settings: ServerSettings, repository: Path) -> None:
    """Check that the server can start.

    Raises:
        PreflightError: the problems found, one sentence each.
    """
    problems = [
        *triton.problems(),
        *_shared_memory_problems(),
        *filter(None, [file_limit_problem(NEEDED_FILES)]),
        *ports.problems,
        *repository_problems(repository),
        *code_problems(PYTHON),
        *not_writable("server.log_file", settings.log_file.absolute().parent),
        *not_writable("tritonserver", TRITON_FOLDER),
    ]
    if problems:
        raise PreflightError(problems)


def repository_problems(repository: Path) -> list[str]:
    configurations = sorted(repository.glob("*/config.pbtxt"))
    if not configurations:
        return [f"{repository} holds no model: render the model repository first"]
    return [problem for path in configurations for problem in _model_problems(path)]


def models_of(repository: Path) -> list[str]:
    """The names of the models in a repository."""
    return sorted(path.parent.name for path in repository.glob("*/config.pbtxt"))


def checkpoint_of(repository: Path) -> str:
    """The checkpoint directory of a repository; empty if no model names one."""
    models = models_of(repository)
    return next(filter(None, (read_parameter(repository / name, "checkpoint_dir") for name in models)), "")


def not_writable(user: str, folder: Path) -> list[str]:
    """A sentence if nothing can be written to a folder, or to the folder in which it will be made.

    Args:
        user: the setting, or the program, that writes to it.
    """
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return []
    remedy = f"mount a volume or a tmpfs there that user {os.geteuid()} may write to"
    return [f"{user} writes to {folder}, which can't be written: {remedy}, or name another place"]


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


def _model_problems(configuration: Path) -> list[str]:
    model = configuration.parent
    if not MODEL_NAME.fullmatch(model.name):
        return [f"{str(model)!r}: a model's name has letters, digits, '.', '_' and '-' of ASCII alone"]
    text = configuration.read_text(encoding="utf-8")
    unfilled = sorted(placeholders(text))
    if unfilled:
        return [f"{configuration} is a template still (${{{unfilled[0]}}}): render the model repository"]
    problems = []
    if not any(entry.name.isdecimal() for entry in model.iterdir() if entry.is_dir()):
        problems.append(f"{model} has no version directory such as {model.name}/1")
    try:
        checkpoint, voices = read_parameter(model, "checkpoint_dir"), read_parameter(model, "voices_dir")
    except TemplateError as error:
        return [*problems, str(error)]
    if checkpoint and not Path(checkpoint).is_dir():
        problems.append(f"{model.name}: its checkpoint_dir {checkpoint} is no directory")
    return problems + (not_writable(f"{model.name}.voices_dir", Path(voices)) if voices else [])


def _shared_memory_problems() -> list[str]:
    if not shared_memory.DIRECTORY.is_dir():
        return [f"{shared_memory.DIRECTORY} is missing: the server shares memory with its models there"]
    if problems := not_writable("the server", shared_memory.DIRECTORY):
        return problems
    free = shared_memory.free_mib()
    if free < NEEDED_SHARED_MIB:
        needed = f"{free} MiB free and {NEEDED_SHARED_MIB} are needed"
        return [f"{shared_memory.DIRECTORY} has {needed}: enlarge it (docker: --shm-size)"]
    return []
