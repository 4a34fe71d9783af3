"""NVIDIA's libraries, as they are installed."""

from __future__ import annotations

import importlib

from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.pinned import CONTAINER, LIBRARIES


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
            f"{name} can't be imported ({error}); NVIDIA's container {CONTAINER} has it"
        ) from error
