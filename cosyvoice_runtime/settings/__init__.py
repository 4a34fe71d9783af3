"""The settings of a deployment: one frozen object, a section per model and one for the server."""

from cosyvoice_runtime.settings.deployment import Settings
from cosyvoice_runtime.settings.machine import Machine
from cosyvoice_runtime.settings.models import (
    AudioTokenizerSettings,
    CosyVoice2Settings,
    SpeakerEmbeddingSettings,
    TensorrtLlmSettings,
    Token2WavSettings,
)
from cosyvoice_runtime.settings.server import GRPC_URL_VARIABLE, ServerSettings

__all__ = [
    "GRPC_URL_VARIABLE",
    "AudioTokenizerSettings",
    "CosyVoice2Settings",
    "Machine",
    "ServerSettings",
    "Settings",
    "SpeakerEmbeddingSettings",
    "TensorrtLlmSettings",
    "Token2WavSettings",
]
