"""What a model reads and sets up when it is loaded."""

from __future__ import annotations

import gc
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cosyvoice_runtime.process.log_lines import log_lines

if TYPE_CHECKING:
    from cosyvoice_runtime.settings.model import ModelSettings

Settings = TypeVar("Settings", bound="ModelSettings")


MAPPED_MEMORY = re.compile(r"(/dev/shm/\S+)$", re.MULTILINE)


def close_shared_memory() -> None:
    """Keep other users out of the memory that this process shares with the server: it holds the requests.

    The python backend makes it readable for everybody, whatever the umask.
    """
    for path in set(MAPPED_MEMORY.findall(Path("/proc/self/maps").read_text())):
        if Path(path).is_file():
            os.chmod(path, 0o600)


def read_parameters(arguments: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The model's parameters as they are configured, with logging set up as they say.

    Args:
        arguments: of ``TritonPythonModel.initialize``.
    """
    close_shared_memory()
    parameters: dict[str, dict[str, str]] = json.loads(arguments["model_config"])["parameters"]
    level = parameters["log_level"]["string_value"].upper()
    log_lines(level, "%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    return parameters


def read_settings(arguments: Mapping[str, str], section: type[Settings]) -> Settings:
    """The model's settings, with logging set up as they say.

    Args:
        arguments: of ``TritonPythonModel.initialize``.
    """
    return section.from_parameters(read_parameters(arguments))


def load_uncollected() -> None:
    """Until :func:`keep_loaded`, Python's collector does not look through what is there for cycles.

    It would again and again, for a tenth of the time that modules of torch take to load.
    """
    gc.disable()


def keep_loaded() -> None:
    """What is loaded by now stays: Python's collector need not look through it for cycles ever again.

    With torch's modules that takes 0.1 s, now and then, in which nothing else of the process runs.
    """
    gc.enable()
    gc.collect()
    gc.freeze()


def limit_torch(threads: int) -> None:
    """CPU threads of one operation of torch in this process, for models that compute with it."""
    import torch  # takes seconds, and memory: other models don't

    torch.set_num_threads(threads)
