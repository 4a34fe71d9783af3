"""Local synthesis of speech, from text and a voice to waveform chunks."""

from cosyvoice_runtime.engine.utterance.request import AudioChunk, SpeechRequest
from cosyvoice_runtime.engine.utterance.turn import Turn
from cosyvoice_runtime.local.synthesizer import Synthesizer

__all__ = ["AudioChunk", "SpeechRequest", "Synthesizer", "Turn"]
