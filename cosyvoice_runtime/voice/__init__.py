"""Voices: what the networks need to know of a speaker, made from reference audio and kept in a store.

The extractors (``voice.speech_tokenizer``, ``voice.speaker_encoder``) need onnxruntime; they are imported
from their modules, so that the rest runs without.
"""

from cosyvoice_runtime.voice.build import build_voice, voice_key
from cosyvoice_runtime.voice.store import VoiceEntry, VoiceStore
from cosyvoice_runtime.voice.voice import Voice

__all__ = ["Voice", "VoiceEntry", "VoiceStore", "build_voice", "voice_key"]
