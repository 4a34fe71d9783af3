"""The engine ``vllm``: vLLM's engine core in this process (docs/engines.md).

:func:`register` is an entry point (``vllm.general_plugins``) of this project: vLLM calls it in each of its
processes, so the model is known wherever vLLM starts workers of its own.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from cosyvoice_runtime.errors import InvalidInput

VLLM_CONTAINERS = {
    "0.24.0": "nvcr.io/nvidia/tritonserver:26.07-vllm-python-py3",
    "0.27.1": "nvcr.io/nvidia/tritonserver:26.08-vllm-python-py3",
}
"""Releases of vLLM to whose sources the engine is held, each with the image that brings it. They require
torch 2.11.0 and 2.13.0 (the ``Requires-Dist`` of their wheels)."""
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
    """Raise `InvalidInput` unless a release of vLLM to which the engine is held is installed.

    Its Python interfaces change with every release, so another one would fail late or draw differently.
    """
    known = " or ".join(VLLM_CONTAINERS)
    try:
        found = version("vllm")
    except PackageNotFoundError as error:
        limit = f"vllm is not installed; this version works with {known}: {_images()}"
        raise InvalidInput("tensorrt_llm.engine", "vllm", limit) from error
    if found.partition("+")[0] not in VLLM_CONTAINERS:  # A build's own label may follow.
        limit = f"vllm {found} is installed, this version works with {known}: {_images()}"
        raise InvalidInput("tensorrt_llm.engine", "vllm", limit)


def _images() -> str:
    return ", ".join(f"{image} has {release}" for release, image in VLLM_CONTAINERS.items())
