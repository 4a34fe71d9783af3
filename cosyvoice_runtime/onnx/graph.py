"""An ONNX graph in the making, written operator by operator.

The graphs are written by hand, not traced: the same weights give the same bytes, every type is chosen on
purpose, and only operators occur that TensorRT has. That they compute what
the networks compute is for the tests to show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cosyvoice_runtime.arrays import Array

FAR = 1 << 40
"""End of a slice up to the end."""
OPSET = 18
IR_VERSION = 9
FLOAT: int = TensorProto.FLOAT
HALF: int = TensorProto.FLOAT16
INT64: int = TensorProto.INT64
INT8: int = TensorProto.INT8
UINT8: int = TensorProto.UINT8
BOOL: int = TensorProto.BOOL
DOUBLE: int = TensorProto.DOUBLE
ONNX_TYPES = {"float32": FLOAT, "float16": HALF, "float64": DOUBLE}
NUMPY_TYPES: dict[int, type[np.generic]] = {
    FLOAT: np.float32, HALF: np.float16, DOUBLE: np.float64, INT64: np.int64, INT8: np.int8,
    UINT8: np.uint8, BOOL: np.bool_,
}  # fmt: skip
Shape = Sequence[int | str]
"""Sizes; a name stands for a size that is free."""


@dataclass(frozen=True)
class Value:
    """A tensor in a graph; arithmetic on it adds nodes. Numbers take the other operand's type."""

    graph: Graph
    name: str
    type: int

    def __add__(self, other: Value | float) -> Value:
        return self.graph.binary("Add", self, other)

    def __sub__(self, other: Value | float) -> Value:
        return self.graph.binary("Sub", self, other)

    def __mul__(self, other: Value | float) -> Value:
        return self.graph.binary("Mul", self, other)

    def __truediv__(self, other: Value | float) -> Value:
        return self.graph.binary("Div", self, other)

    def __matmul__(self, other: Value) -> Value:
        return self.graph.binary("MatMul", self, other)

    def __lt__(self, other: Value | float) -> Value:
        return self.graph.binary("Less", self, other, BOOL)


class Graph:
    """Nodes, weights and ports.

    Args:
        name: of the graph; tells files apart.
        dtype: ``float32`` or ``float16``, the type of weights and matrix products. What half precision would
            spoil is widened in place; ``float64`` where the graph's own rounding would add up.
        weights: parameters by their names in the network.
    """

    def __init__(self, name: str, dtype: str, weights: Mapping[str, Array] | None = None) -> None:
        self.name = name
        self.type = ONNX_TYPES[dtype]
        self.weights = weights or {}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, onnx_type: int, shape: Shape) -> Value:
        self._inputs.append(helper.make_tensor_value_info(name, onnx_type, shape))
        return Value(self, name, onnx_type)

    def output(self, name: str, value: Value, shape: Shape) -> None:
        self._nodes.append(helper.make_node("Identity", [value.name], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, value.type, shape))

    def weight(self, name: str, array: Array | None = None, onnx_type: int | None = None) -> Value:
        """A parameter, or another array in its place, under the parameter's name, in the graph's type by
        default."""
        chosen = self.type if onnx_type is None else onnx_type
        values = self.weights[name] if array is None else array
        return self._stored(name, np.asarray(values).astype(NUMPY_TYPES[chosen]), chosen)

    def constant(self, value: float | Sequence[int] | np.ndarray[Any, Any], onnx_type: int) -> Value:
        array = np.asarray(value, dtype=NUMPY_TYPES[onnx_type])
        few = "_".join(map(str, array.flatten().tolist()))
        label = few if array.size <= 4 else f"number_{len(self._constants)}"
        return self._stored(f"const_{onnx_type}_{array.ndim}_{label}", array, onnx_type)

    def node(
        self,
        op: str,
        *inputs: Value | None,
        onnx_type: int | None = None,
        outputs: int = 1,
        **attributes: Any,
    ) -> Any:
        """Add a node: its output, or a list of them. Their type is that of the first input by default."""
        first = inputs[0]
        assert first is not None
        chosen = first.type if onnx_type is None else onnx_type
        names = [f"{op}_{len(self._nodes)}_{index}" for index in range(outputs)]
        given = ["" if value is None else value.name for value in inputs]
        self._nodes.append(helper.make_node(op, given, names, name=names[0], **attributes))
        values = [Value(self, name, chosen) for name in names]
        return values[0] if outputs == 1 else values

    def binary(self, op: str, left: Value, right: Value | float, onnx_type: int | None = None) -> Value:
        other = right if isinstance(right, Value) else self.constant(right, left.type)
        if left.type != other.type:  # ONNX converts nothing by itself
            raise TypeError(f"{op} of {left.name} and {other.name}: types {left.type} and {other.type}")
        return self.node(op, left, other, onnx_type=onnx_type)

    def cast(self, value: Value, onnx_type: int) -> Value:
        if value.type == onnx_type:
            return value
        return self.node("Cast", value, onnx_type=onnx_type, to=onnx_type)

    def wide(self, value: Value) -> Value:
        """The value in float32, for what half precision would spoil."""
        return self.cast(value, FLOAT)

    def narrow(self, value: Value) -> Value:
        """The value in the graph's type."""
        return self.cast(value, self.type)

    def integers(self, *values: int) -> Value:
        return self.constant(values, INT64)

    def size(self, value: Value, axis: int) -> Value:
        """Size of an axis: int64 [1]."""
        return self.node("Shape", value, onnx_type=INT64, start=axis, end=axis + 1)

    def arange(self, size: Value) -> Value:
        """int64 [size] of ``size`` int64 [1]."""
        end = self.node("Squeeze", size, self.integers(0))
        return self.node("Range", self.constant(0, INT64), end, self.constant(1, INT64))

    def slice(self, value: Value, axis: int, start: int | Value, end: int | Value) -> Value:
        bounds = [bound if isinstance(bound, Value) else self.integers(bound) for bound in (start, end)]
        return self.node("Slice", value, *bounds, self.integers(axis))

    def reshape(self, value: Value, shape: Sequence[int] | Value) -> Value:
        """0 keeps a size, -1 infers one."""
        target = shape if isinstance(shape, Value) else self.integers(*shape)
        return self.node("Reshape", value, target)

    def unsqueeze(self, value: Value, *axes: int) -> Value:
        return self.node("Unsqueeze", value, self.integers(*axes))

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        return self.node("Concat", *values, axis=axis)

    def transpose(self, value: Value, *order: int) -> Value:
        return self.node("Transpose", value, perm=order)

    def model(self) -> onnx.ModelProto:
        """The finished, checked model."""
        model = self.unchecked_model()
        onnx.checker.check_model(model)
        return model

    def unchecked_model(self) -> onnx.ModelProto:
        """The finished model. Operators of other domains than ONNX's own are of their first version."""
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, list(self._constants.values())
        )
        return helper.make_model(
            graph,
            producer_name="cosyvoice_runtime",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET), *self._other_opsets()],
        )

    def _other_opsets(self) -> list[onnx.OperatorSetIdProto]:
        domains = sorted({node.domain for node in self._nodes} - {""})
        return [helper.make_opsetid(domain, 1) for domain in domains]

    def _stored(self, name: str, array: np.ndarray[Any, Any], onnx_type: int) -> Value:
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(array.copy(order="C"), name)
        return Value(self, name, onnx_type)
