"""HiFT: mel to waveform, whole or in chunks of any size."""

from cosyvoice_runtime.vocoder import causal, causal_geometry, sampled_phase
from cosyvoice_runtime.vocoder.geometry import context
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.source import SourceNoise
from cosyvoice_runtime.vocoder.stream import change_speed, stream
from cosyvoice_runtime.vocoder.windows import VocoderState

FAMILIES = (causal, causal_geometry, sampled_phase)
"""Modules that register a family's parts."""

__all__ = ["FAMILIES", "HiFT", "SourceNoise", "VocoderState", "change_speed", "context", "stream"]
