"""HiFT: mel to waveform, whole or in chunks of any size."""

from cosyvoice_runtime.vocoder import causal, causal_geometry
from cosyvoice_runtime.vocoder.geometry import context
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.source import SourceNoise
from cosyvoice_runtime.vocoder.stream import change_speed, stream
from cosyvoice_runtime.vocoder.windows import VocoderState

__all__ = [
    "HiFT",
    "SourceNoise",
    "VocoderState",
    "causal",
    "causal_geometry",
    "change_speed",
    "context",
    "stream",
]
