"""``token2wav``: speech tokens to waveform, chunk by chunk, for many utterances at once."""

from cosyvoice_runtime.serving.hosted.host_model import Token2WavModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
