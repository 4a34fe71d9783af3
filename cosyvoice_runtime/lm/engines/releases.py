"""Releases of the libraries that engines are built and run with, and whether they are installed.

TensorRT-LLM: Triton's compatibility matrix (``docs/introduction/compatibility.md``, r26.07), the last with
``trtllm-build``, for TensorRT-LLM removed the engine workflow after 1.2.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version

from cosyvoice_runtime.errors import EngineFileError, InvalidInput

TRTLLM_CONTAINER = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
LIBRARIES = {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48"}
"""Versions of the libraries that an engine is bound to."""
VLLM_VERSION = "0.24.0"
"""It requires torch 2.11.0 (the ``Requires-Dist`` of its wheel)."""
VLLM_CONTAINER = "nvcr.io/nvidia/tritonserver:26.07-vllm-python-py3"
"""The image that has it."""


def library_versions() -> dict[str, str]:
    """Versions of the libraries that an engine is bound to.

    Raises:
        EngineFileError: one can't be imported; says where it is found.
    """
    return {name: _version(name) for name in LIBRARIES}


def _version(name: str) -> str:
    try:
        return str(importlib.import_module(name).__version__)
    except ImportError as error:
        raise EngineFileError(
            f"{name} can't be imported ({error}); NVIDIA's container {TRTLLM_CONTAINER} has it"
        ) from error


def require_vllm() -> None:
    """Raise `InvalidInput` if vLLM is not installed in the release that is needed.

    Its Python interfaces change with every release, so another one would fail late or draw differently.
    """
    try:
        found = version("vllm")
    except PackageNotFoundError as error:
        limit = f"vllm is not installed; {VLLM_CONTAINER} has the release {VLLM_VERSION}"
        raise InvalidInput("tensorrt_llm.engine", "vllm", limit) from error
    if found.partition("+")[0] != VLLM_VERSION:  # a build's own label may follow
        limit = f"vllm {found} is installed, this version works with {VLLM_VERSION}"
        raise InvalidInput("tensorrt_llm.engine", "vllm", limit)
