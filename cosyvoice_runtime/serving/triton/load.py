"""What a model reads when it is loaded."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TypeVar

import torch

from cosyvoice_runtime.settings.model import ModelSettings

Settings = TypeVar("Settings", bound=ModelSettings)


def read_settings(arguments: Mapping[str, str], section: type[Settings]) -> Settings:
    """The model's settings, with logging and torch's threads set up as they say.

    Args:
        arguments: of ``TritonPythonModel.initialize``.
    """
    parameters = json.loads(arguments["model_config"])["parameters"]
    settings = section.from_parameters(parameters)
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    torch.set_num_threads(settings.threads)
    return settings
