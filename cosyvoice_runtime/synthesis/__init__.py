"""Text and a voice in, waveform chunks out."""

from cosyvoice_runtime.synthesis.request import AudioChunk, SpeechRequest
from cosyvoice_runtime.synthesis.synthesizer import Synthesizer

__all__ = ["AudioChunk", "SpeechRequest", "Synthesizer"]
