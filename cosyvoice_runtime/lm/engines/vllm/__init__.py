"""The engine ``vllm``: vLLM's engine core in this process (docs/engines.md)."""
