"""Matrix products of a graph in whole numbers, which CPUs with VNNI or AMX multiply several times as fast."""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.onnx.graph import FLOAT, INT8, UINT8, Graph, Value
from cosyvoice_runtime.onnx.runtime_graph import RUNTIME

MOST = 127
"""The largest magnitude in 8 bits."""
MIDDLE = 128
"""Stands for 0 where numbers have no sign: the runtime's fast products take one operand of each kind."""
SMALLEST = 1e-20
"""To divide by, in a row of zeros."""


class IntegerProducts:
    """Products ``x @ weight.T`` whose operands are whole multiples of a scale, of each row of its own.

    The rows of ``x`` are frames: what becomes of one depends on no other, whatever is computed beside it.
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
