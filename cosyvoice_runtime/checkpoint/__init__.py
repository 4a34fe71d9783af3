"""Where weights live on disk, how they are named, read, made and verified.

Reading needs no torch; what makes and writes weights (``scripts/making``) does, and so does
``checkpoint.as_torch``, which reads them for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.tensors import load_speakers, load_tensors

if TYPE_CHECKING:
    from cosyvoice_runtime.checkpoint.sections import load_config
    from cosyvoice_runtime.checkpoint.verify import verify_checkpoint

__all__ = [
    "Layout",
    "ModelConfig",
    "load_config",
    "load_speakers",
    "load_tensors",
    "verify_checkpoint",
]

_BY_YAML = {"load_config": "sections", "verify_checkpoint": "verify"}
"""Modules that need PyYAML, which the front lacks, by their names here."""


def __getattr__(name: str) -> Any:
    if name in _BY_YAML:
        return getattr(import_module(f"{__name__}.{_BY_YAML[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
