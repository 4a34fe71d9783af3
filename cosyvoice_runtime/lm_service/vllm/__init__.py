"""The engine ``vllm``: vLLM's engine core in this process (docs/vllm.md)."""

from cosyvoice_runtime.lm_service.vllm.startup import prepare

__all__ = ["prepare"]
