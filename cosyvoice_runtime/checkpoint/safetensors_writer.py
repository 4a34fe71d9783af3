"""A safetensors file written tensor by tensor, so that memory holds one tensor at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch

from cosyvoice_runtime.checkpoint.schema import Schema

DTYPE_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def write_safetensors(
    path: Path, schema: Schema, dtype: torch.dtype, tensors: Iterable[tuple[str, torch.Tensor]]
) -> None:
    """Write the tensors of ``schema``, which ``tensors`` yields in the same order, as ``dtype``.

    The header precedes the data in this format, hence names and shapes come first and apart.
    """
    with path.open("wb") as file:
        file.write(_header(schema, dtype))
        for (expected, shape), (name, tensor) in zip(schema.items(), tensors, strict=True):
            if (name, tuple(tensor.shape)) != (expected, shape):
                raise ValueError(f"{path}: got {name} {tuple(tensor.shape)} in place of {expected} {shape}")
            file.write(tensor.to(dtype).contiguous().flatten().view(torch.uint8).numpy().data)


def _header(schema: Schema, dtype: torch.dtype) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in schema.items():
        begin, end = end, end + torch.Size(shape).numel() * dtype.itemsize
        entries[name] = {"dtype": DTYPE_NAMES[dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
