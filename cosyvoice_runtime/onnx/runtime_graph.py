"""A graph with ONNX Runtime's own operators, of which one is attention over memory that the caller keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import TensorProto, helper

from cosyvoice_runtime.onnx.graph import Graph, Shape, Value

RUNTIME = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
INT32: int = TensorProto.INT32
BEFORE_BIAS = 10
"""Inputs of the operator for attention that come before the bias."""


class RuntimeGraph(Graph):
    """A graph for ONNX Runtime alone."""

    def runtime(self, op: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> Any:
        """A node of the runtime's own operators."""
        return self.node(op, *inputs, outputs=outputs, domain=RUNTIME, **attributes)

    def bound_output(self, name: str, value: Value, shape: Shape) -> None:
        """Make a value of the last node an output by renaming it, so that nothing copies it."""
        node = self._nodes[-1]
        node.output[list(node.output).index(value.name)] = name
        self._outputs.append(helper.make_tensor_value_info(name, value.type, shape))

    def leave_out(self, *values: Value) -> None:
        """Have the last node not compute some of its outputs."""
        node = self._nodes[-1]
        for value in values:
            node.output[list(node.output).index(value.name)] = ""

    def attention(
        self,
        heads: Sequence[Value | None],
        memory: Sequence[tuple[str, str]],
        shape: Shape,
        place: Sequence[Value],
        bias: Value | None = None,
        **attributes: Any,
    ) -> Value:
        """What the queries of new positions find, ``[B, S, H * D]``.

        Args:
            heads: queries, keys and values ``[B, S, H * D]``, or all three side by side and None twice.
            memory: names of an input and of an output of the graph, for keys and for values. Bound to the
                same memory, new ones are written behind those that are there, and nothing is copied.
            shape: of such an input, ``[B, H, room, D]``.
            place: int32 ``[B]``, where the last new position lies, and int32 ``[1]``, how many there are up
                to it; cosines and sines, if heads are to be turned.
            bias: ``[B, 1, S, all]``, added to the scores. B is 1 then, as wherever several new positions look
                back on others.
        """
        first = heads[0]
        assert first is not None
        past = (self.input(read, first.type, shape) for read, _ in memory)
        inputs = [*heads, *past, *place]
        if bias is not None:
            inputs += [*(None for _ in range(BEFORE_BIAS - len(inputs))), bias]
        mixed: Value
        mixed, *present = self.runtime("GroupQueryAttention", *inputs, outputs=3, **attributes)
        for (_, written), value in zip(memory, present, strict=True):
            self.bound_output(written, value, shape)
        return mixed
