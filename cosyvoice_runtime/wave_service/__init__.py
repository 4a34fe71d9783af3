"""Token2wav as a service: chunks of many utterances in, their waveforms out, batched and bounded."""

from cosyvoice_runtime.wave_service.chunk import PromptTensors, WaveChunk
from cosyvoice_runtime.wave_service.load import load_wave_service
from cosyvoice_runtime.wave_service.router import WaveRouter
from cosyvoice_runtime.wave_service.scheduler import WaveScheduler
from cosyvoice_runtime.wave_service.service import Outcome, WaveService
from cosyvoice_runtime.wave_service.usage import Usage
from cosyvoice_runtime.wave_service.voices import VoiceCache

__all__ = [
    "Outcome",
    "PromptTensors",
    "Usage",
    "VoiceCache",
    "WaveChunk",
    "WaveRouter",
    "WaveScheduler",
    "WaveService",
    "load_wave_service",
]
