"""Building an engine with trtllm-build."""
