"""A checkpoint's configuration files, read as the sizes of its networks."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from cosyvoice_runtime.checkpoint import hyperpyyaml
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.config_lm import WHOLE_TEXTS
from cosyvoice_runtime.checkpoint.json_file import read_json
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import CheckpointError, shorten
from cosyvoice_runtime.families import load

LARGEST_NUMBER = 10_000_000
"""Above every published size and constant (rope_theta is 1e6)."""


def load_config(directory: str | Path) -> ModelConfig:
    """Architecture from the family's yaml file and, where its speech LM is a Qwen2, from
    ``CosyVoice-BlankEN/config.json``, read as plain data.

    Raises:
        CheckpointError: a file or key is missing or damaged, or the directory describes a model of another
            family than its yaml file is named for.
    """
    layout = Layout(directory)
    tree = hyperpyyaml.read(layout.config)
    files = [layout.config, *([layout.qwen2_config] if layout.family.has_qwen2 else [])]
    qwen2 = read_json(layout.qwen2_config) if layout.family.has_qwen2 else {}
    try:
        config: ModelConfig = load(layout.family.read_config)(tree, qwen2)
        check_numbers(config)
    except (CheckpointError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise CheckpointError(f"{' with '.join(map(str, files))}: {error}") from error
    return config


def check_numbers(value: Any, name: str = "configuration") -> None:
    """Require every leaf of a configuration to be a number that a size or a constant can be.

    Raises:
        CheckpointError: a leaf is of another type, not positive, or absurdly large.
    """
    if is_dataclass(value):
        for field in fields(value):
            item = getattr(value, field.name)
            if item != WHOLE_TEXTS:
                check_numbers(item, f"{name}.{field.name}")
    elif isinstance(value, tuple):
        for item in value:
            check_numbers(item, name)
    elif type(value) not in (int, float) or not 0 < value <= LARGEST_NUMBER:
        raise CheckpointError(
            f"{name} is {shorten(value)}, expected a number above 0, at most {LARGEST_NUMBER}"
        )
