"""What a rendered model repository says."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from cosyvoice_runtime.settings.extractors import AudioTokenizerSettings, SpeakerEmbeddingSettings
from cosyvoice_runtime.settings.model import SHARED
from cosyvoice_runtime.settings.repository import CONFIGURATION
from cosyvoice_runtime.settings.tensorrt_llm import TensorrtLlmSettings
from cosyvoice_runtime.settings.token2wav import Token2WavSettings

HOST = Token2WavSettings.name
GUESTS = (TensorrtLlmSettings.name, AudioTokenizerSettings.name, SpeakerEmbeddingSettings.name)
"""Models that may compute in the host's process."""


def read_parameters(model: Path) -> dict[str, dict[str, str]]:
    """The ``parameters`` of a model's configuration, as Triton gives them to the model.

    Args:
        model: its directory.
    """
    text = (model / CONFIGURATION).read_text(encoding="utf-8")
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    return {key: {"string_value": value.string_value} for key, value in config.parameters.items()}


def guests_of(repository: Path) -> list[str]:
    """Models that compute in token2wav's process beside it."""
    if not (repository / HOST).exists():
        return []
    return [model for model in GUESTS if (repository / model).exists() and _is_shared(repository / model)]


def home_of(repository: Path, model: str) -> str:
    """The model in whose process a model computes, itself as a rule."""
    return HOST if model in guests_of(repository) else model


def _is_shared(model: Path) -> bool:
    return read_parameters(model).get("process", {}).get("string_value") == SHARED
