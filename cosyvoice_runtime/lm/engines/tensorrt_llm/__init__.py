"""The engine ``tensorrt_llm``: NVIDIA's executor in this process. Not executed yet: docs/engines.md."""
