"""Arrays of numpy, and tensors of a checkpoint as such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
"""float32: samples, features, embeddings."""
Ids = npt.NDArray[np.int32]
"""int32: speech tokens."""


def as_arrays(tensors: Mapping[str, Any]) -> dict[str, Array]:
    """float32 arrays of numpy's or torch's."""
    return {name: _array(tensor) for name, tensor in tensors.items()}


def within(weights: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Weights whose names begin with a prefix, named without it."""
    return {name.removeprefix(prefix): array for name, array in weights.items() if name.startswith(prefix)}


def _array(tensor: Any) -> Array:
    return np.asarray(tensor.float() if hasattr(tensor, "float") else tensor).astype(np.float32, copy=False)
