"""Small ONNX graphs with the published interfaces, or interfaces that are wrong in one respect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BATCH = "batch"


def write_tokenizer(
    path: Path,
    *,
    batch: int | str = BATCH,
    bins: int = 128,
    frames: int | str = "frames",
    length_type: int = TensorProto.INT32,
    output_type: int = TensorProto.INT32,
    stride: int = 4,
    offset: float = 0.0,
    inputs: int = 2,
) -> Path:
    """Every fourth frame's largest value over the bins, times 1000, as a token: exact in every batch."""
    nodes = [
        helper.make_node("Slice", ["feats", "start", "stop", "axis", "stride"], ["every_fourth"]),
        helper.make_node("ReduceMax", ["every_fourth"], ["largest"], axes=[1], keepdims=0),
        helper.make_node("Mul", ["largest", "scale"], ["scaled"]),
        helper.make_node("Abs", ["scaled"], ["positive"]),
        helper.make_node("Add", ["positive", "offset"], ["shifted"]),
        helper.make_node("Cast", ["shifted"], ["indices"], to=output_type),
    ]
    constants = {
        "start": np.array([0]),
        "stop": np.array([2**31]),
        "axis": np.array([2]),
        "stride": np.array([stride]),
        "scale": np.float32(1000),
        "offset": np.float32(offset),
    }
    feats = helper.make_tensor_value_info("feats", TensorProto.FLOAT, [batch, bins, frames])
    length = helper.make_tensor_value_info("feats_length", length_type, [batch])
    output = helper.make_tensor_value_info("indices", output_type, [batch, "tokens"])
    return _save(path, nodes, [feats, length][:inputs], output, constants)


def write_encoder(path: Path, *, dimension: int = 24, bins: int = 80, pool: bool = True) -> Path:
    """A fixed projection of the features' largest value over time."""
    weight = np.random.default_rng(7).standard_normal((bins, dimension)).astype(np.float32)
    nodes = [
        helper.make_node("ReduceMax", ["input"], ["pooled"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["pooled" if pool else "input", "weight"], ["output"]),
    ]
    features = helper.make_tensor_value_info("input", TensorProto.FLOAT, [BATCH, "frames", bins])
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, None)
    return _save(path, nodes, [features], output, {"weight": weight})


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    output: onnx.ValueInfoProto,
    constants: dict[str, np.ndarray],
) -> Path:
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, path.stem, inputs, [output], initializers)
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path
