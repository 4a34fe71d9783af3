"""What a model reads when it is loaded."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from cosyvoice_runtime.settings.model import ModelSettings

Settings = TypeVar("Settings", bound=ModelSettings)


MAPPED_MEMORY = re.compile(r"(/dev/shm/\S+)$", re.MULTILINE)


def close_shared_memory() -> None:
    """Keep other users out of the memory that this process shares with the server: it holds the requests.

    The python backend makes it readable for everybody, whatever the umask.
    """
    for path in set(MAPPED_MEMORY.findall(Path("/proc/self/maps").read_text())):
        if Path(path).is_file():
            os.chmod(path, 0o600)


def read_settings(arguments: Mapping[str, str], section: type[Settings]) -> Settings:
    """The model's settings, with logging set up as they say.

    Args:
        arguments: of ``TritonPythonModel.initialize``.
    """
    close_shared_memory()
    parameters = json.loads(arguments["model_config"])["parameters"]
    settings = section.from_parameters(parameters)
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    return settings


def use_threads(count: int) -> None:
    """Threads of one operation of torch, in the whole process."""
    import torch  # takes seconds, and memory that a door does without

    torch.set_num_threads(count)
