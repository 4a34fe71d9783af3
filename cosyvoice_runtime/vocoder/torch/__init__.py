"""HiFT: mel to waveform, whole or in chunks of any size."""

from cosyvoice_runtime.vocoder.context import context
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from cosyvoice_runtime.vocoder.torch.source import SourceNoise
from cosyvoice_runtime.vocoder.torch.stream import HiFTStream, change_speed, open_state, stream

__all__ = ["HiFT", "HiFTStream", "SourceNoise", "change_speed", "context", "open_state", "stream"]
