"""Checkpoints with a number in a weight that training or a broken disk may leave there."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper

from cosyvoice_runtime.checkpoint.checksums import write_checksums
from cosyvoice_runtime.checkpoint.layout import Layout


def damaged(
    checkpoint: Path, copy: Path, file: str, tensor: str, value: float, rows: slice = slice(None)
) -> Path:
    """A copy of a checkpoint in which rows of a tensor are this value; its checksums are of what it holds."""
    shutil.copytree(checkpoint, copy)
    tensors = torch.load(copy / file, weights_only=True)
    tensors[tensor][rows] = value
    torch.save(tensors, copy / file)
    return _listed(copy)


def damaged_graph(checkpoint: Path, copy: Path, file: str, initializer: str, value: float) -> Path:
    """The same of an extractor's graph."""
    shutil.copytree(checkpoint, copy)
    model = onnx.load(copy / file)
    [found] = [each for each in model.graph.initializer if each.name == initializer]
    array = numpy_helper.to_array(found).copy()
    array[...] = value
    found.CopyFrom(numpy_helper.from_array(array, initializer))
    onnx.save(model, copy / file)
    return _listed(copy)


def _listed(copy: Path) -> Path:
    layout = Layout(copy)
    write_checksums(layout.directory, layout.names())
    return copy
