"""Weights as torch's tensors, in the memory of the arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint import tensors
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout, Part


def load_tensors(layout: Layout, part: Part, config: ModelConfig) -> dict[str, Tensor]:
    """Load a network's tensors as :func:`cosyvoice_runtime.checkpoint.tensors.load_tensors` does."""
    return all_as_torch(tensors.load_tensors(layout, part, config))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file's tensors as :func:`cosyvoice_runtime.checkpoint.tensors.read_tensors` does."""
    return all_as_torch(tensors.read_tensors(path))


def all_as_torch(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """An array under two names is one tensor."""
    made = {id(array): as_torch(array) for array in arrays.values()}
    return {name: made[id(array)] for name, array in arrays.items()}


def as_torch(array: Array) -> Tensor:
    """A tensor in the memory of the array."""
    if array.dtype == ml_dtypes.bfloat16:  # which torch does not know from numpy
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
