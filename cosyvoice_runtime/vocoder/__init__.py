"""HiFT: mel to waveform, whole or in chunks of any size."""

from cosyvoice_runtime.vocoder.geometry import context
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.noise import SourceNoise
from cosyvoice_runtime.vocoder.speed import change_speed
from cosyvoice_runtime.vocoder.state import VocoderState
from cosyvoice_runtime.vocoder.stream import stream

__all__ = ["HiFT", "SourceNoise", "VocoderState", "change_speed", "context", "stream"]
