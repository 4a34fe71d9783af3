"""What a rendered model repository says."""

from __future__ import annotations

import re
from pathlib import Path

from cosyvoice_runtime.settings.extractors import AudioTokenizerSettings, SpeakerEmbeddingSettings
from cosyvoice_runtime.settings.repository import CONFIGURATION
from cosyvoice_runtime.settings.template import TemplateError, unescape
from cosyvoice_runtime.settings.tensorrt_llm import TensorrtLlmSettings
from cosyvoice_runtime.settings.token2wav import Token2WavSettings

HOST = Token2WavSettings.name
HOSTED = (TensorrtLlmSettings.name, AudioTokenizerSettings.name, SpeakerEmbeddingSettings.name)
"""Models that are computed in the host's process; their own are proxies."""
PARAMETER = re.compile(
    r'^parameters \{ key: "(\w+)" value: \{ string_value: "((?:[^"\\]|\\.)*)" \} \}$', re.MULTILINE
)
"""As the templates write it: protobuf's reader, and gRPC that comes with it here, take 10 MiB of memory."""
BEGINNING = re.compile(r"^\s*parameters\b", re.MULTILINE)


def read_parameters(model: Path) -> dict[str, dict[str, str]]:
    """The ``parameters`` of a model's configuration, as Triton gives them to the model.

    Args:
        model: its directory.

    Raises:
        TemplateError: the configuration writes them in another way.
    """
    text = (model / CONFIGURATION).read_text(encoding="utf-8")
    found = PARAMETER.findall(text)
    if len(found) != len(BEGINNING.findall(text)):
        raise TemplateError(
            f"{model / CONFIGURATION}: each of the parameters is to stand in a line as rendered"
        )
    return {key: {"string_value": unescape(value)} for key, value in found}


def read_parameter(model: Path, key: str) -> str:
    """One of them; empty where the model, or the parameter, is missing.

    Raises:
        TemplateError: as :func:`read_parameters`.
    """
    return read_parameters(model).get(key, {}).get("string_value", "") if model.is_dir() else ""


def hosted_models(repository: Path) -> list[str]:
    """The models of a repository that token2wav's process computes besides its own."""
    return [model for model in HOSTED if (repository / model).exists()]


def home_of(repository: Path, model: str) -> str:
    """The model in whose process a model computes, itself as a rule."""
    return HOST if model in hosted_models(repository) else model
