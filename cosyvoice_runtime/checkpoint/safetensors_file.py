"""Safetensors files: read as arrays in mapped memory, and written from tensors of torch."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.schema import Schema
from cosyvoice_runtime.checkpoint.tensor_pickle import Skipped
from cosyvoice_runtime.errors import CheckpointError

if TYPE_CHECKING:
    import torch


LENGTH_BYTES = 8
"""Bytes of the header's length, which precedes it (safetensors' README)."""
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}


def read_safetensors(path: Path) -> dict[str, Array | Skipped]:
    """Arrays by name; the file is memory-mapped, and writing changes no file.

    A tensor of a dtype that no network here has is :class:`Skipped`. numpy's reader of this format copies,
    and knows no bfloat16.

    Raises:
        CheckpointError: the file is damaged.
    """
    try:
        with safe_open(path, "np"):
            pass  # sizes and places are checked
        with path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            header = json.loads(file.read(length))
        data = np.asarray(np.memmap(path, np.uint8, "c"))[LENGTH_BYTES + length :]
        header.pop("__metadata__", None)
        return {name: _array(data, **entry) for name, entry in header.items()}
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: truncated or damaged: {error}") from error


def _array(data: Array, dtype: str, shape: list[int], data_offsets: tuple[int, int]) -> Array | Skipped:
    if dtype not in DTYPES:
        return Skipped(f"dtype {dtype}")
    begin, end = data_offsets
    return data[begin:end].view(DTYPES[dtype]).reshape(shape)


WRITTEN = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3"}
"""Names of dtypes of torch."""


def write_safetensors(
    path: Path,
    schema: Schema,
    dtype: torch.dtype,
    tensors: Iterable[tuple[str, torch.Tensor]],
    other_dtypes: Mapping[str, torch.dtype] = MappingProxyType({}),
) -> None:
    """Write a safetensors file tensor by tensor, so that memory holds one tensor at a time.

    The header precedes the data in this format, hence names and shapes come first and apart.

    Args:
        schema: names and shapes, in the order of ``tensors``.
        dtype: the dtype in the file, except for tensors that ``other_dtypes`` names.
    """
    import torch

    with path.open("wb") as file:
        dtypes = dict.fromkeys(schema, dtype) | dict(other_dtypes)
        file.write(_header(schema, dtypes))
        for (expected, shape), (name, tensor) in zip(schema.items(), tensors, strict=True):
            if (name, tuple(tensor.shape)) != (expected, shape):
                raise ValueError(f"{path}: got {name} {tuple(tensor.shape)} in place of {expected} {shape}")
            file.write(tensor.to(dtypes[name]).contiguous().flatten().view(torch.uint8).numpy().data)


def _header(schema: Schema, dtypes: Mapping[str, torch.dtype]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in schema.items():
        begin, end = end, end + math.prod(shape) * dtypes[name].itemsize
        entries[name] = {
            "dtype": WRITTEN[str(dtypes[name]).removeprefix("torch.")],
            "shape": shape,
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
