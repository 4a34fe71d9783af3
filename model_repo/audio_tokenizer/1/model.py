"""``audio_tokenizer``: reference to speech tokens."""

from cosyvoice_runtime.serving.proxies.models import AudioTokenizerModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
