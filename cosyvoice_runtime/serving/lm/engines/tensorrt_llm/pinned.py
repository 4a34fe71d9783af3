"""The container that engines are built and run in.

Versions: Triton's compatibility matrix (``docs/introduction/compatibility.md``, r26.07). It is the last with
``trtllm-build``: TensorRT-LLM removed the engine workflow after 1.2.
"""

from cosyvoice_runtime.preflight.container import Container

CONTAINER = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
LIBRARIES = {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48"}
"""Those that an engine is bound to."""
NUMPY = "1.26.4"
"""TensorRT 10.14's Python bindings are compiled for numpy 1: with numpy 2 arrays from them have strides of 0
and ``Weights(array)`` raises. The image is given this version (``requirements/nvidia-trtllm.txt``)."""
PINNED = Container(
    image=CONTAINER,
    python=(3, 12),
    cuda=(13, 1),
    driver=(590, 44),
    libraries={**LIBRARIES, "numpy": NUMPY},
)
