"""``cosyvoice2``: text and a voice in, speech out, by way of the other models."""

from cosyvoice_runtime.serving.speech.model import SpeechModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
