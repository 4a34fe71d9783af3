"""A safetensors file written tensor by tensor, so that memory holds one tensor at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import torch

from cosyvoice_runtime.checkpoint.shapes import Schema

DTYPE_NAMES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float8_e4m3fn: "F8_E4M3",
}  # fmt: skip
Dtypes = Mapping[str, torch.dtype]


def write_safetensors(
    path: Path,
    schema: Schema,
    dtype: torch.dtype,
    tensors: Iterable[tuple[str, torch.Tensor]],
    other_dtypes: Dtypes = MappingProxyType({}),
) -> None:
    """Write the tensors of ``schema``, which ``tensors`` yields in the same order, as ``dtype``.

    Args:
        other_dtypes: by name, of those that have another.

    The header precedes the data in this format, hence names and shapes come first and apart.
    """
    with path.open("wb") as file:
        dtypes = dict.fromkeys(schema, dtype) | dict(other_dtypes)
        file.write(_header(schema, dtypes))
        for (expected, shape), (name, tensor) in zip(schema.items(), tensors, strict=True):
            if (name, tuple(tensor.shape)) != (expected, shape):
                raise ValueError(f"{path}: got {name} {tuple(tensor.shape)} in place of {expected} {shape}")
            file.write(tensor.to(dtypes[name]).contiguous().flatten().view(torch.uint8).numpy().data)


def _header(schema: Schema, dtypes: Dtypes) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in schema.items():
        begin, end = end, end + torch.Size(shape).numel() * dtypes[name].itemsize
        entries[name] = {"dtype": DTYPE_NAMES[dtypes[name]], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
