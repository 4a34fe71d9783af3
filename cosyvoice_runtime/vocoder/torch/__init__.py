"""HiFT: mel to waveform, whole or in chunks of any size."""

from cosyvoice_runtime.vocoder.context import context
from cosyvoice_runtime.vocoder.torch import causal, sampled_phase
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from cosyvoice_runtime.vocoder.torch.source import SourceNoise
from cosyvoice_runtime.vocoder.torch.stream import HiFTStream, change_speed, open_state, stream

FAMILIES = (causal, sampled_phase)
"""Modules that register a family's parts."""

__all__ = ["FAMILIES", "HiFT", "HiFTStream", "SourceNoise", "change_speed", "context", "open_state", "stream"]
