"""The settings of a deployment: one frozen object, a section per model, for the server and for the front."""

from cosyvoice_runtime.settings.cosyvoice2 import CosyVoice2Settings
from cosyvoice_runtime.settings.deployment import Settings
from cosyvoice_runtime.settings.extractors import AudioTokenizerSettings, SpeakerEmbeddingSettings
from cosyvoice_runtime.settings.front import FrontSettings
from cosyvoice_runtime.settings.machine import Machine
from cosyvoice_runtime.settings.server import ServerSettings
from cosyvoice_runtime.settings.tensorrt_llm import TensorrtLlmSettings
from cosyvoice_runtime.settings.token2wav import Token2WavSettings

__all__ = [
    "AudioTokenizerSettings",
    "CosyVoice2Settings",
    "FrontSettings",
    "Machine",
    "ServerSettings",
    "Settings",
    "SpeakerEmbeddingSettings",
    "TensorrtLlmSettings",
    "Token2WavSettings",
]
