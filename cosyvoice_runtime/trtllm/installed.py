"""What is there to build and run engines with: NVIDIA's libraries and the GPU."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import torch

from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.trtllm.pinned import CONTAINER, LIBRARIES


class Gpu(NamedTuple):
    """Name as CUDA gives it, and compute capability (``"9.0"``)."""

    name: str
    compute_capability: str


def library_versions() -> dict[str, str]:
    """Versions of the libraries that an engine is bound to.

    Raises:
        EngineFileError: one can't be imported; says where it is found.
    """
    return {name: _version(name) for name in LIBRARIES}


def present_gpu() -> Gpu:
    """The first GPU that this process sees.

    Raises:
        EngineFileError: it sees none.
    """
    if not torch.cuda.is_available():
        raise EngineFileError("this process sees no GPU")
    properties = torch.cuda.get_device_properties(0)
    return Gpu(properties.name, f"{properties.major}.{properties.minor}")


def _version(name: str) -> str:
    try:
        return str(importlib.import_module(name).__version__)
    except ImportError as error:
        raise EngineFileError(
            f"{name} can't be imported ({error}); NVIDIA's container {CONTAINER} has it"
        ) from error
