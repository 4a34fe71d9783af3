"""Reader of a goldens directory: ``X.json`` names the cases, ``X.safetensors`` holds ``<case>.<name>``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from cosyvoice_runtime.checkpoint.config import ModelConfig

Compare = Callable[[str, torch.Tensor, torch.Tensor, float], None]
"""The fixture ``compare``: name, actual, expected, absolute tolerance."""

DIRECTORY = Path(os.environ.get("GOLDENS_DIR", Path(__file__).parent.parent / "goldens"))


@dataclass(frozen=True)
class Case:
    """One reference case: its settings and its tensors by short name."""

    name: str
    settings: dict[str, Any]
    tensors: dict[str, torch.Tensor]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __str__(self) -> str:
        return self.name


@cache
def tensors(name: str) -> dict[str, torch.Tensor]:
    """All tensors of ``<name>.safetensors``."""
    return load_file(DIRECTORY / f"{name}.safetensors")


@cache
def settings(name: str) -> Any:
    """Content of ``<name>.json``."""
    return json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))


def cases(group: str, prefix: str = "") -> list[Case]:
    """Cases of a group, in file order, whose name starts with ``prefix``."""
    by_case: dict[str, dict[str, torch.Tensor]] = {}
    for full_name, tensor in tensors(group).items():
        case, _, short_name = full_name.partition(".")
        by_case.setdefault(case, {})[short_name] = tensor
    return [
        Case(name, values, by_case.get(name, {}))
        for name, values in settings(group).items()
        if name.startswith(prefix)
    ]


def config() -> ModelConfig:
    """Architecture of the goldens' networks."""
    sections = settings("config")
    return ModelConfig.from_sections(sections, num_up_layers=sections["encoder_up_blocks"])
