"""HiFT: mel to waveform, whole or in chunks of any size."""

from cosyvoice_runtime.vocoder.geometry import context
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from cosyvoice_runtime.vocoder.torch.source import source_noise
from cosyvoice_runtime.vocoder.torch.stream import HiFTStream

__all__ = ["HiFT", "HiFTStream", "context", "source_noise"]
