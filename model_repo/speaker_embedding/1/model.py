"""``speaker_embedding``: reference to the vector of its speaker."""

from cosyvoice_runtime.serving.proxies import SpeakerEmbeddingModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
