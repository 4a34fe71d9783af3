"""The one release of vLLM that this engine is written for and has run with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from cosyvoice_runtime.errors import InvalidInput

VERSION = "0.24.0"
"""It requires torch 2.11.0 (the ``Requires-Dist`` of its wheel)."""
CONTAINER = "nvcr.io/nvidia/tritonserver:26.07-vllm-python-py3"
"""The image that has it."""


def require_vllm() -> None:
    """
    Raises:
        InvalidInput: vLLM is not installed, or another release of it. Its Python interfaces change with
            every release, so another one would fail late or draw differently.
    """
    try:
        found = version("vllm")
    except PackageNotFoundError as error:
        limit = f"vllm is not installed; {CONTAINER} has the release {VERSION}"
        raise InvalidInput("tensorrt_llm.engine", "vllm", limit) from error
    if found.partition("+")[0] != VERSION:  # a build's own label may follow
        limit = f"vllm {found} is installed, this version works with {VERSION}"
        raise InvalidInput("tensorrt_llm.engine", "vllm", limit)
