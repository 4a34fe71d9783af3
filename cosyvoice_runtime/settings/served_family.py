"""Checks that an engine and a backend can run the networks of a checkpoint's family."""

from __future__ import annotations

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import Settings, TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.settings.machine import installed
from cosyvoice_runtime.settings.runtime_choice import ONNX, TORCH


def require_served(settings: Settings) -> None:
    """Refuse settings that the checkpoint's networks can't be served with, as :func:`require_runs` does."""
    require_runs(settings.tensorrt_llm)
    require_runs(settings.token2wav)


def require_runs(settings: TensorrtLlmSettings | Token2WavSettings) -> None:
    """Refuse an engine or a backend that can't run the checkpoint's networks.

    Raises:
        InvalidInput: it runs no networks of this family, or is not installed.
        CheckpointError: the directory has the files of several families.
    """
    family, checkpoint = Layout(settings.checkpoint_dir).family, settings.checkpoint_dir
    value: str
    if isinstance(settings, TensorrtLlmSettings):
        field, value, accepted = "engine", settings.engine, family.engines
    else:
        field, value, accepted = "backend", settings.backend, family.backends
    if value not in accepted:
        limit = (
            f"{' or '.join(accepted)} with a checkpoint of {family.name}, {checkpoint}/{family.config_file}"
        )
        raise InvalidInput(f"{settings.name}.{field}", value, limit)
    if value == TORCH and not installed(TORCH):  # an environment for a CPU may have none
        others = "onnx or auto on a machine without torch, or " if ONNX in accepted else ""
        limit = f"{others}scripts/environment.py --torch: it is not installed, and {family.name} runs on "
        raise InvalidInput(f"{settings.name}.{field}", value, limit + " or ".join(accepted))
