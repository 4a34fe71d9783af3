"""Readers of goldens directories: ``X.json`` names the cases, ``X.safetensors`` holds ``<case>.<name>``.

``GOLDENS_DIR`` names another directory, which takes the place of the stored one of its family.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint import sections_cosyvoice2, sections_cosyvoice3, sections_cosyvoice300m
from cosyvoice_runtime.checkpoint.config import ModelConfig

Compare = Callable[[str, torch.Tensor | Array, torch.Tensor, float], None]
"""The fixture ``compare``: name, actual, expected, absolute tolerance."""

TESTS = Path(__file__).parent.parent


@dataclass(frozen=True)
class Case:
    """One reference case: its settings and its tensors by short name."""

    name: str
    settings: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    family: Goldens

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __str__(self) -> str:
        return f"{self.family.name}-{self.name}" if self.family.name else self.name


class Goldens:
    """Reference outputs of one family.

    Args:
        name: of its cases; empty for CosyVoice2.
        stored: directory beside the tests.
        marker: section of ``config.json`` by which a directory of the family is told.
        config_of: its sections to an architecture.
    """

    def __init__(
        self, name: str, stored: str, marker: str, config_of: Callable[[dict[str, Any]], ModelConfig]
    ) -> None:
        self.name = name
        self.directory = TESTS / stored
        self.config_of = config_of
        self._tensors: dict[str, dict[str, torch.Tensor]] = {}
        other = os.environ.get("GOLDENS_DIR")
        if other and marker in read(Path(other) / "config.json"):
            self.directory = Path(other)

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """All tensors of ``<name>.safetensors``."""
        if name not in self._tensors:
            self._tensors[name] = load_file(self.directory / f"{name}.safetensors")
        return self._tensors[name]

    def settings(self, name: str) -> Any:
        """Content of ``<name>.json``."""
        return read(self.directory / f"{name}.json")

    def cases(self, group: str, prefix: str = "") -> list[Case]:
        """Cases of a group, in file order, whose name starts with ``prefix``."""
        by_case: dict[str, dict[str, torch.Tensor]] = {}
        for full_name, tensor in self.tensors(group).items():
            case, _, short_name = full_name.partition(".")
            by_case.setdefault(case, {})[short_name] = tensor
        return [
            Case(name, values, by_case.get(name, {}), self)
            for name, values in self.settings(group).items()
            if name.startswith(prefix)
        ]

    def config(self) -> ModelConfig:
        """Architecture of the networks."""
        return self.config_of(self.settings("config"))


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def cosyvoice2_config(sections: dict[str, Any]) -> ModelConfig:
    return sections_cosyvoice2.config_from_sections(sections, num_up_layers=sections["encoder_up_blocks"])


COSYVOICE2 = Goldens("", "goldens", "encoder", cosyvoice2_config)
COSYVOICE3 = Goldens(
    "cosyvoice3", "goldens_cosyvoice3", "pre_lookahead", sections_cosyvoice3.config_from_sections
)
COSYVOICE_300M = Goldens(
    "cosyvoice300m", "goldens_cosyvoice300m", "length_regulator", sections_cosyvoice300m.config_from_sections
)

tensors, settings, cases, config = (
    COSYVOICE2.tensors,
    COSYVOICE2.settings,
    COSYVOICE2.cases,
    COSYVOICE2.config,
)
"""CosyVoice2's."""
