"""Token2wav as a service: chunks of many utterances in, their waveforms out, batched and bounded."""

from cosyvoice_runtime.serving.token2wav.chunk import PromptTensors, WaveChunk
from cosyvoice_runtime.serving.token2wav.load import load_wave_service
from cosyvoice_runtime.serving.token2wav.router import WaveRouter
from cosyvoice_runtime.serving.token2wav.scheduler import WaveScheduler
from cosyvoice_runtime.serving.token2wav.service import WaveOutcome, WaveService
from cosyvoice_runtime.serving.token2wav.usage import Usage
from cosyvoice_runtime.serving.token2wav.voices import VoiceCache

__all__ = [
    "PromptTensors",
    "Usage",
    "VoiceCache",
    "WaveChunk",
    "WaveOutcome",
    "WaveRouter",
    "WaveScheduler",
    "WaveService",
    "load_wave_service",
]
