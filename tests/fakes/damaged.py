"""Checkpoints with a number in a weight that training or a broken disk may leave there."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from cosyvoice_runtime.checkpoint.checksums import write_checksums
from cosyvoice_runtime.checkpoint.layout import Layout


def damaged(
    checkpoint: Path, copy: Path, file: str, tensor: str, value: float, rows: slice = slice(None)
) -> Path:
    """A copy of a checkpoint in which rows of a tensor are this value; its checksums are of what it holds."""
    shutil.copytree(checkpoint, copy)
    tensors = torch.load(copy / file)
    tensors[tensor][rows] = value
    torch.save(tensors, copy / file)
    layout = Layout(copy)
    write_checksums(layout.directory, layout.names())
    return copy
