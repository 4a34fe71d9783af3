"""A graph on TensorRT: a pool of streams, each with contexts, memory and CUDA graphs of its own."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cosyvoice_runtime.flow.torch.layers import Gathered
from cosyvoice_runtime.gpu.cuda_graphs import EagerCalls
from cosyvoice_runtime.tensorrt.engine import Shapes, TensorRTContext, TensorRTEngine
from cosyvoice_runtime.tensorrt.ports import Inputs

Key = tuple[tuple[int, ...], ...]
End = Callable[[], dict[str, Tensor]]
"""Has the caller's stream wait for a call, and gives its outputs on it."""


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


class Lane:
    """Runs one call at a time, in order with the stream that it is called from; the host does not wait.

    Args:
        eager: counts calls of shapes that were not captured, where others were.
    """

    def __init__(self, engine: TensorRTEngine, eager: EagerCalls) -> None:
        self._eager = eager
        self._engine, self._cuda = engine, engine.cuda
        self._stream = self._cuda.new_stream()
        self._contexts = [engine.context(profile, self._stream) for profile in range(engine.num_profiles)]
        self._scratch = self._empty(1)
        self._captured: dict[Key, CapturedCall] = {}
        self._read: Any = None  # event after which the outputs of the last call have been copied away

    def capture(self, wanted: Sequence[Shapes]) -> None:
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
            graph = self._capture(context)
            self._captured[self._key(shapes)] = CapturedCall(tensors, scratch, context, graph)

    def start(self, inputs: Inputs) -> End:
        """Begin a call; the inputs must stay in place until its end, and no other call may begin before."""
        shapes = {name: tuple(inputs[name].shape) for name in self._engine.inputs}
        call = self._captured.get(self._key(shapes))
        if call is not None:
            return self._replay(call, inputs)
        if self._captured:
            self._eager.add(f"{self._engine.path.name} has no graph for {shapes}")
        return self._enqueue(shapes, inputs)

    def _replay(self, call: CapturedCall, inputs: Inputs) -> End:
        caller = self._cuda.current_stream()
        self._stream.wait_stream(caller)
        if self._read is not None:
            self._stream.wait_event(self._read)
        with self._cuda.on(self._stream):
            for name in self._engine.inputs:
                _write(inputs[name], call.tensors[name])
            call.graph.replay()

        def end() -> dict[str, Tensor]:
            caller.wait_stream(self._stream)
            outputs = {name: call.tensors[name].clone() for name in self._engine.outputs}
            self._read = caller.record_event()
            return outputs

        return end

    def _enqueue(self, shapes: Shapes, inputs: Inputs) -> End:
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

        def end() -> dict[str, Tensor]:
            caller.wait_stream(self._stream)
            given.clear()  # kept until here: the work reads them
            return outputs

        return end

    def _capture(self, context: TensorRTContext) -> Any:
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


def _write(value: Tensor | Gathered, out: Tensor) -> None:
    if isinstance(value, Tensor):
        out.copy_(value)
    else:
        value.into(out)


def whole(value: Tensor | Gathered) -> Tensor:
    """The tensor itself, or what it is gathered to."""
    return value if isinstance(value, Tensor) else value.whole()


logger = logging.getLogger(__name__)


class TensorRTNetwork:
    """
    Args:
        lanes: calls that run at once, of several threads or of one; one more waits for a lane.
        captured: shapes of the inputs whose calls become CUDA graphs. All of them are captured here, none
            later: a capture must not meet other threads' CUDA calls. Other shapes are enqueued as they are.
        eager: counts these; by default one of its own.
    """

    def __init__(
        self,
        engine: TensorRTEngine,
        captured: Sequence[Shapes] = (),
        lanes: int = 1,
        eager: EagerCalls | None = None,
    ) -> None:
        self._cuda = engine.cuda
        self._idle: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        for _ in range(lanes):
            with self._cuda.current():
                lane = Lane(engine, eager or EagerCalls())
                if captured:
                    lane.capture(captured)
            self._idle.put(lane)
        logger.info("%s: %d lanes, %d CUDA graphs each", engine.path.name, lanes, len(captured))

    def run(self, inputs: Inputs) -> dict[str, Tensor]:
        [outputs] = self.run_all([inputs])
        return outputs

    def run_all(self, calls: Iterable[Inputs]) -> list[dict[str, Tensor]]:
        """As many at once as lanes are idle."""
        waiting, outputs = iter(calls), []
        with self._cuda.current():
            while some := self._run_some(waiting):
                outputs += some
        return outputs

    def _run_some(self, waiting: Iterator[Inputs]) -> list[dict[str, Tensor]]:
        """The next calls, on lanes of their own; none at the end."""
        lanes, ends = [], []
        try:
            for inputs in waiting:
                lanes.append(self._idle.get())  # whoever holds the last one waits for no other: see below
                ends.append(lanes[-1].start(inputs))
                if self._idle.empty():
                    break
            return [end() for end in ends]
        except BaseException:
            for end in ends:  # until then the calls that have begun use memory that would be freed here
                end()
            raise
        finally:
            for lane in lanes:
                self._idle.put(lane)
