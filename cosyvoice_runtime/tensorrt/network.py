"""A graph on TensorRT: a stream with contexts, memory and CUDA graphs of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.flow.torch.layers import GatheredPages
from cosyvoice_runtime.gpu.cuda_graphs import EagerCalls
from cosyvoice_runtime.tensorrt.engine import Shapes, TensorRTContext, TensorRTEngine
from cosyvoice_runtime.tensorrt.engine_files import Dims, GraphPorts, Inputs
from cosyvoice_runtime.tensorrt.shapes import Sizes

BATCH = "batch"
logger = logging.getLogger(__name__)

Tensors = Mapping[str, Tensor]
Key = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class CapturedCall:
    """A call of fixed shapes, as a CUDA graph over tensors of its own.

    A captured graph holds its context's state: the context runs nothing else from then on. It holds memory
    by address only, so all that it uses is kept here.
    """

    tensors: dict[str, Tensor]
    scratch: Tensor
    context: TensorRTContext
    graph: Any


class TensorRTNetwork:
    """A graph on TensorRT, for several threads; one call runs at a time.

    Calls run in a stream of the network's own, in order with the stream that they are made from; the host
    does not wait.

    Args:
        captured: shapes of the inputs whose calls become CUDA graphs. All of them are captured here, none
            later: a capture must not meet other threads' CUDA calls. Other shapes are enqueued as they are.
        eager: counts calls of other shapes; by default one of its own.
    """

    def __init__(
        self, engine: TensorRTEngine, captured: Sequence[Shapes] = (), eager: EagerCalls | None = None
    ) -> None:
        self._eager = eager or EagerCalls()
        self._engine, self._cuda = engine, engine.cuda
        self._one_call = threading.Lock()
        self._captured: dict[Key, CapturedCall] = {}
        self._read: Any = None  # event after which the outputs of the last call have been copied away
        with self._cuda.current():
            self._stream = self._cuda.new_stream()
            profiles = range(engine.num_profiles)
            self._contexts = [engine.context(profile, self._stream) for profile in profiles]
            self._scratch = self._empty(1)
            if captured:
                self._capture(captured)
        logger.info("%s: %d CUDA graphs", engine.path.name, len(captured))

    def run(self, inputs: Inputs) -> dict[str, Tensor]:
        """All outputs by name, on the inputs' device; nothing of the inputs is kept or changed."""
        shapes = {name: tuple(inputs[name].shape) for name in self._engine.inputs}
        call = self._captured.get(self._key(shapes))
        with self._one_call, self._cuda.current():
            if call is not None:
                return self._replay(call, inputs)
            if self._captured:
                self._eager.add(f"{self._engine.path.name} has no graph for {shapes}")
            return self._enqueue(shapes, inputs)

    def _capture(self, wanted: Sequence[Shapes]) -> None:
        """Prepare calls of these shapes. They share their memory, as only one of them runs at a time."""
        contexts = []
        for shapes in wanted:
            context = self._engine.context(self._engine.profile_of(shapes), self._stream)
            context.set_shapes(shapes)
            contexts.append(context)
        scratch = self._empty(max(1, *(context.scratch_bytes() for context in contexts)))
        memory = self._memory(contexts)
        for shapes, context in zip(wanted, contexts, strict=True):
            tensors = {name: _view(flat, context.shape(name)) for name, flat in memory.items()}
            context.bind(tensors, scratch)
            graph = self._graph(context)
            self._captured[self._key(shapes)] = CapturedCall(tensors, scratch, context, graph)

    def _replay(self, call: CapturedCall, inputs: Inputs) -> dict[str, Tensor]:
        caller = self._cuda.current_stream()
        self._stream.wait_stream(caller)
        if self._read is not None:
            self._stream.wait_event(self._read)
        with self._cuda.on(self._stream):
            for name in self._engine.inputs:
                _write(inputs[name], call.tensors[name])
            call.graph.replay()
        caller.wait_stream(self._stream)
        outputs = {name: call.tensors[name].clone() for name in self._engine.outputs}
        self._read = caller.record_event()
        return outputs

    def _enqueue(self, shapes: Shapes, inputs: Inputs) -> dict[str, Tensor]:
        """At shapes that were not captured, straight from the inputs and into new outputs."""
        context = self._contexts[self._engine.profile_of(shapes)]
        context.set_shapes(shapes)
        if context.scratch_bytes() > self._scratch.numel():
            self._scratch = self._empty(context.scratch_bytes())
        outputs = {name: self._output(name, context) for name in self._engine.outputs}
        given = {name: whole(inputs[name]) for name in shapes}
        context.bind({**given, **outputs}, self._scratch)
        caller = self._cuda.current_stream()
        self._stream.wait_stream(caller)  # after the outputs were allocated: their memory may be in use there
        context.enqueue(self._stream)
        caller.wait_stream(self._stream)  # which reads the inputs until then
        return outputs

    def _graph(self, context: TensorRTContext) -> Any:
        """A graph of the context's work, after one run: the first of new shapes does more than later ones."""
        context.enqueue(self._stream)
        self._stream.synchronize()
        return self._cuda.capture(self._stream, lambda: context.enqueue(self._stream))

    def _memory(self, contexts: Sequence[TensorRTContext]) -> dict[str, Tensor]:
        """One flat tensor of every input and output, for the largest shape; zeros are valid inputs."""
        with self._cuda.on(self._stream):
            return {
                name: torch.zeros(
                    max(torch.Size(context.shape(name)).numel() for context in contexts),
                    dtype=self._engine.dtypes[name],
                    device=self._cuda.device,
                )
                for name in (*self._engine.inputs, *self._engine.outputs)
            }

    def _output(self, name: str, context: TensorRTContext) -> Tensor:
        return torch.empty(context.shape(name), dtype=self._engine.dtypes[name], device=self._cuda.device)

    def _empty(self, size: int) -> Tensor:
        """Bytes that belong to this stream: freed, they are only used again after its work."""
        with self._cuda.on(self._stream):
            return torch.empty(size, dtype=torch.uint8, device=self._cuda.device)

    def _key(self, shapes: Shapes) -> Key:
        return tuple(shapes[name] for name in self._engine.inputs)


def _view(flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    return flat[: torch.Size(shape).numel()].view(shape)


def _write(value: Tensor | GatheredPages, out: Tensor) -> None:
    if isinstance(value, Tensor):
        out.copy_(value)
    else:
        value.into(out)


def whole(value: Tensor | GatheredPages) -> Tensor:
    """The tensor itself, or what it is gathered to."""
    return value if isinstance(value, Tensor) else value.whole()


class FittedNetwork:
    """A network whose calls are padded to the sizes it was compiled for, or split into fewer rows."""

    def __init__(self, network: TensorRTNetwork, ports: GraphPorts) -> None:
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
        outputs = [self._network.run(self._padded(call, target)) for call in calls]
        pieces = [
            self._cut(output, self._ports.sizes(call)) for output, call in zip(outputs, calls, strict=True)
        ]
        return {
            name: torch.cat([piece[name] for piece in pieces], dims.index(BATCH))
            for name, dims in self._ports.outputs.items()
        }

    def _calls(self, inputs: Inputs, rows: int, most: int) -> Iterator[dict[str, Tensor | GatheredPages]]:
        """The inputs in calls of at most ``most`` rows."""
        for start in range(0, rows, most):
            yield {name: _rows(inputs[name], dims, start, most) for name, dims in self._ports.inputs.items()}

    def _padded(self, inputs: Inputs, target: Sizes) -> dict[str, Tensor | GatheredPages]:
        sizes = self._ports.sizes(inputs)
        return {name: _pad(inputs[name], dims, sizes, target) for name, dims in self._ports.inputs.items()}

    def _cut(self, outputs: Tensors, sizes: Sizes) -> dict[str, Tensor]:
        return {name: _cut(outputs[name], dims, sizes) for name, dims in self._ports.outputs.items()}


def _rows(tensor: Tensor | GatheredPages, dims: Dims, start: int, count: int) -> Tensor | GatheredPages:
    """``count`` rows, or what is left of them; a tensor without rows as it is."""
    if not isinstance(tensor, Tensor):
        return tensor.rows(start, count)
    if BATCH not in dims:
        return tensor
    axis = dims.index(BATCH)
    return tensor.narrow(axis, start, min(count, tensor.shape[axis] - start))


def _pad(tensor: Tensor | GatheredPages, dims: Dims, sizes: Sizes, target: Sizes) -> Tensor | GatheredPages:
    """Add zeros before the past, so that it still ends where the new begins, and after everything else."""
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
    """Cut to the sizes of the inputs; a size that no input has is the network's own."""
    for axis, dim in enumerate(dims):
        if isinstance(dim, str) and dim in sizes:
            tensor = tensor.narrow(axis, 0, sizes[dim])
    return tensor
