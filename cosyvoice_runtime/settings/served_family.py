"""Checks that an engine and a backend can run the networks of a checkpoint's family."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import Family
from cosyvoice_runtime.settings import Settings, TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.settings.machine import installed
from cosyvoice_runtime.settings.runtime_choice import ONNX, TORCH


def require_served(settings: Settings) -> None:
    """Refuse settings that the checkpoint's networks can't be served with.

    Raises:
        InvalidInput: an engine or a backend that the settings name can't run the checkpoint's networks.
        CheckpointError: the directory has the files of several families.
    """
    require_engine(settings.tensorrt_llm)
    require_backend(settings.token2wav)


def require_engine(settings: TensorrtLlmSettings) -> None:
    """Refuse an engine that can't run the checkpoint's speech LM.

    Raises:
        InvalidInput: the engine can't run the checkpoint's speech LM, or is not installed.
        CheckpointError: as :func:`require_served`.
    """
    family = Layout(settings.checkpoint_dir).family
    _require(f"{settings.name}.engine", settings.engine, family.engines, family, settings.checkpoint_dir)


def require_backend(settings: Token2WavSettings) -> None:
    """Refuse a backend that can't run the checkpoint's flow and vocoder.

    Raises:
        InvalidInput: the backend can't run the checkpoint's flow and vocoder, or is not installed.
        CheckpointError: as :func:`require_served`.
    """
    family = Layout(settings.checkpoint_dir).family
    _require(f"{settings.name}.backend", settings.backend, family.backends, family, settings.checkpoint_dir)


def _require(field: str, value: str, accepted: Sequence[str], family: Family, checkpoint: Path) -> None:
    if value not in accepted:
        limit = (
            f"{' or '.join(accepted)} with a checkpoint of {family.name}, {checkpoint}/{family.config_file}"
        )
        raise InvalidInput(field, value, limit)
    if value == TORCH and not installed(TORCH):  # an environment for a CPU may have none
        others = "onnx or auto on a machine without torch, or " if ONNX in accepted else ""
        limit = f"{others}scripts/environment.py --torch: it is not installed, and {family.name} runs on "
        raise InvalidInput(field, value, limit + " or ".join(accepted))
