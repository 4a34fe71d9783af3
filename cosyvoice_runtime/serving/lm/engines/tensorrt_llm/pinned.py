"""The container that engines are built and run in.

Versions: Triton's compatibility matrix (``docs/introduction/compatibility.md``, r26.07). It is the last with
``trtllm-build``: TensorRT-LLM removed the engine workflow after 1.2.
"""

CONTAINER = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
OLDER_CONTAINER = "nvcr.io/nvidia/tritonserver:25.10-trtllm-python-py3"
"""For drivers of branch 575; not what this project is written for."""
LIBRARIES = {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48"}
CUDA = (13, 1)
PYTHON = (3, 12)
DRIVER = (590, 44)
"""Oldest driver that runs this CUDA without NVIDIA's compatibility package."""
