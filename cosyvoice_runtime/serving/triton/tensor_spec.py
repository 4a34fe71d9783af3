"""The description of a tensor, and of a model by its tensors.

Shapes are without the batch dimension, which is 1 in every request of this repository's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Tensors = dict[str, Array]
"""The arrays of tensors by name, with the batch dimension."""

DTYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT64": np.uint64,
    "FP32": np.float32,
    "STRING": np.object_,
}
"""Triton's types and numpy's."""


@dataclass(frozen=True)
class TensorSpec:
    """The description of a tensor.

    Attributes:
        type: Triton's name of its type, without ``TYPE_``.
        dims: its shape; -1 for a size that a request chooses.
        optional: whether a request may omit it.
        ragged: whether requests of different sizes may share a Triton batch.
    """

    name: str
    type: str
    dims: tuple[int, ...]
    meaning: str
    optional: bool = False
    ragged: bool = False

    def encode(self, value: Any) -> Array:
        """Encode a value as a tensor with a batch of one: a number, a bool, a string, or an array in its
        shape."""
        if isinstance(value, str):
            value = value.encode()
        array = np.asarray(value, DTYPES[self.type])
        return np.ascontiguousarray(array.reshape(1, *(array.shape or (1,))))


@dataclass(frozen=True)
class ModelSchema:
    """The inputs and outputs of a model, in the order of its ``config.pbtxt``."""

    name: str
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]

    def encode(self, **values: Any) -> Tensors:
        """Encode the inputs of a request; None omits an input."""
        specs = {spec.name: spec for spec in self.inputs}
        return {name: specs[name].encode(value) for name, value in values.items() if value is not None}

    def encode_outputs(self, **values: Any) -> Tensors:
        """Encode the outputs of a response."""
        specs = {spec.name: spec for spec in self.outputs}
        return {name: specs[name].encode(value) for name, value in values.items()}
