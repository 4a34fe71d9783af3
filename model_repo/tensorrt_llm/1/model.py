"""``tensorrt_llm``: merged-vocabulary ids in, speech ids out, many requests in one running batch."""

from cosyvoice_runtime.serving.proxies import TensorrtLlmModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
