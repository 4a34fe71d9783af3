"""The engine ``vllm``: vLLM's engine core in this process (docs/engines.md).

:func:`register` is an entry point (``vllm.general_plugins``) of this project: vLLM calls it in each of its
processes, so the model is known wherever vLLM starts workers of its own.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from cosyvoice_runtime.errors import InvalidInput

VLLM_VERSION = "0.24.0"
"""It requires torch 2.11.0 (the ``Requires-Dist`` of its wheel)."""
VLLM_CONTAINER = "nvcr.io/nvidia/tritonserver:26.07-vllm-python-py3"
"""The image with this release."""
ARCHITECTURE = "CosyVoice2SpeechLM"
"""``architectures`` of an exported ``config.json``."""
KEY = "cosyvoice2"
"""Key of this library's values in ``SamplingParams.extra_args`` and in ``config.json``."""


def register() -> None:
    """Register the model class; may be called again."""
    from vllm import ModelRegistry

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        # By name: importing the class here would initialise CUDA in processes that only start others.
        ModelRegistry.register_model(ARCHITECTURE, f"{__package__}.model:SpeechQwen2")


def require_vllm() -> None:
    """Raise `InvalidInput` if the needed release of vLLM is not installed.

    Its Python interfaces change with every release, so another one would fail late or draw differently.
    """
    try:
        found = version("vllm")
    except PackageNotFoundError as error:
        limit = f"vllm is not installed; {VLLM_CONTAINER} has the release {VLLM_VERSION}"
        raise InvalidInput("tensorrt_llm.engine", "vllm", limit) from error
    if found.partition("+")[0] != VLLM_VERSION:  # A build's own label may follow.
        limit = f"vllm {found} is installed, this version works with {VLLM_VERSION}"
        raise InvalidInput("tensorrt_llm.engine", "vllm", limit)
