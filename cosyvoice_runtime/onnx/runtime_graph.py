"""A graph with ONNX Runtime's own operators: attention over the caller's memory, integer products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.onnx.graph import FLOAT, INT8, UINT8, Graph, Shape, Value

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
        """Attention of the queries of new positions, ``[B, S, H * D]``.

        Args:
            heads: queries, keys and values ``[B, S, H * D]``, or all three concatenated and None twice.
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


MOST = 127
"""The largest magnitude in 8 bits."""
MIDDLE = 128
"""Stands for 0 where numbers have no sign: the runtime's fast products take one operand of each kind."""
SMALLEST = 1e-20
"""To divide by, in a row of zeros."""


class IntegerProducts:
    """Products ``x @ weight.T`` whose operands are whole multiples of a scale, of each row of its own.

    The rows of ``x`` are frames: the result of one depends on no other.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._middles: Value | None = None

    def product(self, name: str, weight: Array, x: Value) -> Value:
        """``[M, in]`` to ``[M, out]``, by the weight ``[out, in]`` of the layer of this name.

        All calls have the same M.
        """
        graph = self._graph
        steps, scales = quantised_rows(weight)
        values, size = self._quantised(x)
        summed = graph.node(
            "MatMulIntegerToFloat",
            values,
            graph.weight(f"{name}.steps", steps.T, INT8),
            graph.constant(1.0, FLOAT),
            graph.weight(f"{name}.scales", scales, FLOAT),
            graph.constant(MIDDLE, UINT8),
            onnx_type=FLOAT,
            domain=RUNTIME,
        )
        result: Value = summed * size
        return result

    def _quantised(self, x: Value) -> tuple[Value, Value]:
        """Whole numbers uint8 ``[M, in]`` around ``MIDDLE``, and how much one is ``[M, 1]``."""
        graph, columns = self._graph, self._graph.integers(1)
        largest = graph.node("ReduceMax", graph.node("Abs", x), columns, keepdims=1)
        size = graph.node("Max", largest, graph.constant(SMALLEST, FLOAT)) * (1 / MOST)
        if self._middles is None:
            middle = graph.constant([MIDDLE], UINT8)
            self._middles = graph.node("Expand", middle, graph.size(x, 0))
        scales = graph.node("Squeeze", size, columns)
        values = graph.node("QuantizeLinear", x, scales, self._middles, onnx_type=UINT8, axis=0)
        return values, size


def quantised_rows(weight: Array) -> tuple[Array, Array]:
    """A weight as int8 multiples of its rows' scales, so that the largest of a row is ``MOST`` of them.

    Args:
        weight: ``[out, in]``.

    Returns:
        int8 ``[out, in]``, and float32 ``[out]``.
    """
    wide = np.asarray(weight, np.float32)
    scales = np.maximum(np.abs(wide).max(axis=1), np.float32(SMALLEST)) / np.float32(MOST)
    return np.rint(wide / scales[:, None]).astype(np.int8), scales
