"""Text and a voice in, waveform chunks out."""

from cosyvoice_runtime.engine.utterance.request import AudioChunk, SpeechRequest
from cosyvoice_runtime.local.synthesizer import Synthesizer

__all__ = ["AudioChunk", "SpeechRequest", "Synthesizer"]
