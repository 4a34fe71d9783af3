"""``cosyvoice2``: text and a voice in, speech out, spoken by the engine."""

from cosyvoice_runtime.serving.speech.model import SpeechModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
