"""What a rendered model repository says."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from cosyvoice_runtime.settings.repository import CONFIGURATION
from cosyvoice_runtime.settings.tensorrt_llm import TensorrtLlmSettings
from cosyvoice_runtime.settings.token2wav import Token2WavSettings


def read_parameters(model: Path) -> dict[str, dict[str, str]]:
    """The ``parameters`` of a model's configuration, as Triton gives them to the model.

    Args:
        model: its directory.
    """
    text = (model / CONFIGURATION).read_text(encoding="utf-8")
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    return {key: {"string_value": value.string_value} for key, value in config.parameters.items()}


def home_of(repository: Path, model: str) -> str:
    """The model in whose process a model computes, itself as a rule."""
    lm = TensorrtLlmSettings.name
    if model != lm or not (repository / lm).exists():
        return model
    process = read_parameters(repository / lm).get("process", {}).get("string_value")
    return Token2WavSettings.name if process == "shared" else model
