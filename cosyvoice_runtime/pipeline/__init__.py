"""Text and a voice in, waveform chunks out."""

from cosyvoice_runtime.pipeline.request import AudioChunk, SpeechRequest
from cosyvoice_runtime.pipeline.synthesizer import Synthesizer

__all__ = ["AudioChunk", "SpeechRequest", "Synthesizer"]
