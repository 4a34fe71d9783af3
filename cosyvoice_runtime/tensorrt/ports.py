"""Inputs and outputs of a graph with the names of their free sizes, and calls padded to chosen sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import onnx
import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.flow.torch.layers import Gathered
from cosyvoice_runtime.tensorrt.shapes import Sizes

Dims = tuple[int | str, ...]
BATCH = "batch"
Tensors = Mapping[str, Tensor]
Inputs = Mapping[str, Tensor | Gathered]


@dataclass(frozen=True)
class GraphPorts:
    """Shapes by name; a size that is free has a name (see :mod:`cosyvoice_runtime.flow.export`)."""

    inputs: Mapping[str, Dims]
    outputs: Mapping[str, Dims]

    @classmethod
    def read(cls, path: Path) -> GraphPorts:
        """From an ONNX file."""
        graph = onnx.load(path).graph
        return cls(_dims(graph.input), _dims(graph.output))

    def input_shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs at these sizes."""
        return {
            name: tuple(sizes[size] if isinstance(size, str) else size for size in dims)
            for name, dims in self.inputs.items()
        }

    def sizes(self, inputs: Inputs) -> Sizes:
        """The free sizes of given inputs."""
        return {
            dim: size
            for name, dims in self.inputs.items()
            for dim, size in zip(dims, inputs[name].shape, strict=True)
            if isinstance(dim, str)
        }


class CompiledNetwork(Protocol):
    """A graph from :mod:`cosyvoice_runtime.flow.export`, ready to run; safe for several threads."""

    def run(self, inputs: Inputs) -> dict[str, Tensor]:
        """All outputs by name, on the inputs' device; nothing of the inputs is kept or changed."""

    def run_all(self, calls: Iterable[Inputs]) -> list[dict[str, Tensor]]:
        """The outputs of each call, as :meth:`run` gives them; some of the calls may run at once.

        Inputs are asked for when there is room for their call, and not before.
        """


class FittedNetwork:
    """A network whose calls are padded to the sizes it was compiled for, or split into fewer rows."""

    def __init__(self, network: CompiledNetwork, ports: GraphPorts) -> None:
        self._network, self._ports = network, ports

    def run(self, inputs: Inputs, target: Sizes) -> dict[str, Tensor]:
        """All outputs, as if the sizes were those of the inputs.

        Args:
            target: at least the sizes of the inputs. Only the batch may be smaller: it is then the most rows
                of one call.
        """
        sizes = self._ports.sizes(inputs)
        if BATCH not in sizes or sizes[BATCH] <= target[BATCH]:
            return self._cut(self._network.run(self._padded(inputs, target)), sizes)
        calls = list(self._calls(inputs, sizes[BATCH], target[BATCH]))
        outputs = self._network.run_all(self._padded(call, target) for call in calls)
        pieces = [
            self._cut(output, self._ports.sizes(call)) for output, call in zip(outputs, calls, strict=True)
        ]
        return {
            name: torch.cat([piece[name] for piece in pieces], dims.index(BATCH))
            for name, dims in self._ports.outputs.items()
        }

    def _calls(self, inputs: Inputs, rows: int, most: int) -> Iterator[dict[str, Tensor | Gathered]]:
        """The inputs in calls of at most ``most`` rows."""
        for start in range(0, rows, most):
            yield {name: _rows(inputs[name], dims, start, most) for name, dims in self._ports.inputs.items()}

    def _padded(self, inputs: Inputs, target: Sizes) -> dict[str, Tensor | Gathered]:
        sizes = self._ports.sizes(inputs)
        return {name: _pad(inputs[name], dims, sizes, target) for name, dims in self._ports.inputs.items()}

    def _cut(self, outputs: Tensors, sizes: Sizes) -> dict[str, Tensor]:
        return {name: _cut(outputs[name], dims, sizes) for name, dims in self._ports.outputs.items()}


def _rows(tensor: Tensor | Gathered, dims: Dims, start: int, count: int) -> Tensor | Gathered:
    """``count`` rows, or what is left of them; a tensor without rows as it is."""
    if not isinstance(tensor, Tensor):
        return tensor.rows(start, count)
    if BATCH not in dims:
        return tensor
    axis = dims.index(BATCH)
    return tensor.narrow(axis, start, min(count, tensor.shape[axis] - start))


def _pad(tensor: Tensor | Gathered, dims: Dims, sizes: Sizes, target: Sizes) -> Tensor | Gathered:
    """Zeros: before the past, so that it still ends where the new begins, and after everything else."""
    if not isinstance(tensor, Tensor):
        rows, frames = (target[dim] for dim in dims[1:3] if isinstance(dim, str))
        return tensor.padded(rows, frames)
    amounts: list[int] = []
    for dim in reversed(dims):
        missing = target[dim] - sizes[dim] if isinstance(dim, str) else 0
        past = _past_of(dim)
        before = target[past] - sizes[past] if past else 0
        amounts += [before, missing - before]
    return (F.pad(tensor, amounts) if any(amounts) else tensor).contiguous()


def _past_of(dim: int | str) -> str | None:
    """The size of the past within a size that counts past frames, ``past...`` or ``all...``."""
    if isinstance(dim, str) and dim.startswith(("past", "all")):
        return dim.replace("all", "past")
    return None


def _cut(tensor: Tensor, dims: Dims, sizes: Sizes) -> Tensor:
    """To the sizes of the inputs; a size that no input has is the network's own."""
    for axis, dim in enumerate(dims):
        if isinstance(dim, str) and dim in sizes:
            tensor = tensor.narrow(axis, 0, sizes[dim])
    return tensor


def _dims(infos: list[onnx.ValueInfoProto]) -> dict[str, Dims]:
    return {
        info.name: tuple(dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim)
        for info in infos
    }
