"""The setup of a model when it is loaded."""

from __future__ import annotations

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
    """Keep other users from reading the memory that this process shares with the server: it holds requests.

    The python backend makes it readable for everybody, whatever the umask.
    """
    for path in set(MAPPED_MEMORY.findall(Path("/proc/self/maps").read_text())):
        if Path(path).is_file():
            os.chmod(path, 0o600)


def read_parameters(arguments: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The parameters in the arguments of ``initialize``; logging is set up by them."""
    close_shared_memory()
    parameters: dict[str, dict[str, str]] = json.loads(arguments["model_config"])["parameters"]
    level = parameters["log_level"]["string_value"].upper()
    log_lines(level, "%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    return parameters


def read_settings(arguments: Mapping[str, str], section: type[Settings]) -> Settings:
    """The settings in the arguments of ``initialize``; logging is set up by them."""
    return section.from_parameters(read_parameters(arguments))


def limit_torch(threads: int) -> None:
    """Set the CPU threads of one torch operation in this process."""
    import torch  # The import takes seconds and memory, which models without torch need not spend.

    torch.set_num_threads(threads)
