"""``audio_tokenizer``: reference to speech tokens."""

from cosyvoice_runtime.serving.proxies import AudioTokenizerModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
