"""``cosyvoice2_offline``: text and a voice in, the whole speech out, spoken by ``cosyvoice2``."""

from cosyvoice_runtime.serving.proxies import OfflineModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
