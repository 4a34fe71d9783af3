"""The engine ``tensorrt_llm``: NVIDIA's executor in this process. Not executed yet: docs/tensorrt_llm.md."""

from cosyvoice_runtime.lm_service.trtllm.prepare import prepare

__all__ = ["prepare"]
