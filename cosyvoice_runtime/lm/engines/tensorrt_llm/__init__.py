"""The engine ``tensorrt_llm``, and the releases of the libraries that it is bound to.

The numbers are those of Triton's compatibility matrix (``docs/introduction/compatibility.md``, r26.07), the
last with ``trtllm-build``: TensorRT-LLM removed the engine workflow after 1.2.
"""

from __future__ import annotations

import importlib

from cosyvoice_runtime.errors import EngineFileError

TRTLLM_CONTAINER = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
LIBRARIES = {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48"}
"""Versions of the libraries that an engine is bound to."""


def library_versions() -> dict[str, str]:
    """Versions of the libraries that an engine is bound to; an EngineFileError tells of a missing one."""
    return {name: _version(name) for name in LIBRARIES}


def _version(name: str) -> str:
    try:
        return str(importlib.import_module(name).__version__)
    except ImportError as error:
        raise EngineFileError(
            f"{name} can't be imported ({error}); NVIDIA's container {TRTLLM_CONTAINER} has it"
        ) from error
