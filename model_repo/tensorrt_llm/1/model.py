"""``tensorrt_llm``: merged-vocabulary ids in, speech ids out, many requests in one running batch."""

from cosyvoice_runtime.serving.proxies.models import TensorrtLlmModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
