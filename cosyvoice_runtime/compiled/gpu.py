"""The GPU that engines are built for and run on."""

from __future__ import annotations

from typing import NamedTuple

import torch

from cosyvoice_runtime.errors import EngineFileError

FIRST = torch.device("cuda", 0)


class Gpu(NamedTuple):
    """Name as CUDA gives it, and compute capability (``"9.0"``)."""

    name: str
    compute_capability: str


def present_gpu(device: torch.device = FIRST) -> Gpu:
    """A GPU that this process sees.

    Raises:
        EngineFileError: it sees none.
    """
    if not torch.cuda.is_available():
        raise EngineFileError("this process sees no GPU")
    properties = torch.cuda.get_device_properties(device)
    return Gpu(properties.name, f"{properties.major}.{properties.minor}")
