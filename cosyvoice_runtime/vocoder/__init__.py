"""HiFT: mel to waveform, whole or in chunks of any size."""

from cosyvoice_runtime.vocoder import causal, sampled_phase
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.source import SourceNoise
from cosyvoice_runtime.vocoder.stream import HiFTStream, change_speed, open_state, stream
from cosyvoice_runtime.wave.context import context

FAMILIES = (causal, sampled_phase)
"""Modules that register a family's parts."""

__all__ = ["FAMILIES", "HiFT", "HiFTStream", "SourceNoise", "change_speed", "context", "open_state", "stream"]
