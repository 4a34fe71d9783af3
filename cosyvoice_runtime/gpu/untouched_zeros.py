"""Zeros that take no host memory before they are written."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def untouched_zeros(*shape: int, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Make zeros like ``torch.zeros``, for stores that are sized for the maximum and mostly hold less.

    ``torch.zeros`` writes every byte; numpy asks the system for pages that are zero when they are first read.
    """
    if torch.device(device).type != "cpu" or 0 in shape:
        return torch.zeros(shape, device=device, dtype=dtype)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(shape)
