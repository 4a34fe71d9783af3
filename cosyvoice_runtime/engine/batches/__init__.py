"""Token2wav as a service: chunks of many utterances in, their waveforms out, batched and bounded."""

from cosyvoice_runtime.engine.batches.chunk import PromptTensors, WaveChunk, WaveOutcome
from cosyvoice_runtime.engine.batches.load import open_router
from cosyvoice_runtime.engine.batches.router import WaveRouter
from cosyvoice_runtime.engine.batches.scheduler import WaveScheduler
from cosyvoice_runtime.engine.batches.service import WaveService
from cosyvoice_runtime.engine.batches.usage import Usage
from cosyvoice_runtime.engine.batches.voices import VoiceCache

__all__ = [
    "PromptTensors",
    "Usage",
    "VoiceCache",
    "WaveChunk",
    "WaveOutcome",
    "WaveRouter",
    "WaveScheduler",
    "WaveService",
    "open_router",
]
