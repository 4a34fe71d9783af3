"""Small ONNX graphs with the inputs and outputs of the published speech tokenizer and speaker encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8
MEL_BINS, FBANK_BINS = 128, 80
CODE_DIGITS = 8
"""Ternary digits of a speech token: 3^8 = 6561 codes."""


def write_speech_tokenizer(
    path: Path, seed: int, codes: int = 3**CODE_DIGITS, frames_per_token: int = 4
) -> None:
    """``feats`` [B, 128, T] float32 log-mel at 100 Hz, ``feats_length`` [B] int32 -> ``indices`` int32.

    Two convolutions, one or both of stride 2, give ``ceil(ceil(T / 2) / 2)`` frames of 8 values or twice as
    many, each rounded to a ternary digit. The filters sum to 0 over the mel bins and the edges are repeated,
    so that digital silence is one constant token.

    Args:
        codes: at most 6561; greater numbers are taken modulo this.
        frames_per_token: of the log-mel, 4 or 2.
    """
    noise = np.random.Generator(np.random.PCG64([seed, 1]))
    first = noise.standard_normal((CODE_DIGITS, MEL_BINS, 3)).astype(np.float32)
    first = 0.6 * (first - first.mean(axis=1, keepdims=True))
    second = np.eye(CODE_DIGITS, dtype=np.float32)[:, :, None] * np.array([0.25, 0.5, 0.25], dtype=np.float32)
    nodes = [
        *_strided_convolution("feats", "first", "halved"),
        *_strided_convolution("halved", "second", "quartered", frames_per_token // 2),
        helper.make_node("Transpose", ["quartered"], ["frames"], perm=[0, 2, 1]),
        helper.make_node("Tanh", ["frames"], ["bounded"]),
        helper.make_node("Round", ["bounded"], ["ternary"]),
        helper.make_node("Add", ["ternary", "one"], ["digits"]),
        helper.make_node("MatMul", ["digits", "powers"], ["numbers"]),
        helper.make_node("Mod", ["numbers", "count"], ["codes"], fmod=1),
        helper.make_node("Cast", ["codes"], ["indices"], to=TensorProto.INT32),
    ]
    constants = {
        "first": first,
        "second": second,
        "edges": np.array([0, 0, 1, 0, 0, 1], dtype=np.int64),
        "one": np.float32(1),
        "count": np.float32(codes),
        "powers": np.float32(3) ** np.arange(CODE_DIGITS, dtype=np.float32),
    }
    inputs = [
        helper.make_tensor_value_info("feats", TensorProto.FLOAT, ["batch", MEL_BINS, "frames"]),
        helper.make_tensor_value_info("feats_length", TensorProto.INT32, ["batch"]),
    ]
    output = helper.make_tensor_value_info("indices", TensorProto.INT32, ["batch", "tokens"])
    _save(path, nodes, inputs, output, constants)


def write_speaker_encoder(path: Path, speaker_dim: int, seed: int) -> None:
    """``input`` [B, T, 80] float32 kaldi fbank -> ``output`` [B, speaker_dim] float32.

    A projection of the mean and the standard deviation of every bin over time.
    """
    noise = np.random.Generator(np.random.PCG64([seed, 2]))
    weight = noise.standard_normal((2 * FBANK_BINS, speaker_dim)) / np.sqrt(FBANK_BINS)
    nodes = [
        helper.make_node("ReduceMean", ["input"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["input", "mean"], ["deviation"]),
        helper.make_node("Mul", ["deviation", "deviation"], ["squared"]),
        helper.make_node("ReduceMean", ["squared"], ["variance"], axes=[1], keepdims=1),
        helper.make_node("Sqrt", ["variance"], ["spread"]),
        helper.make_node("Concat", ["mean", "spread"], ["statistics"], axis=2),
        helper.make_node("Squeeze", ["statistics", "time_axis"], ["pooled"]),
        helper.make_node("MatMul", ["pooled", "weight"], ["output"]),
    ]
    constants = {
        "weight": weight.astype(np.float32),
        "time_axis": np.array([1], dtype=np.int64),
    }
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", "frames", FBANK_BINS])]
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", speaker_dim])
    _save(path, nodes, inputs, output, constants)


def _strided_convolution(source: str, weight: str, target: str, stride: int = 2) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Pad", [source, "edges"], [f"{target}_padded"], mode="edge"),
        helper.make_node("Conv", [f"{target}_padded", weight], [target], strides=[stride], kernel_shape=[3]),
    ]


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    output: onnx.ValueInfoProto,
    constants: dict[str, Any],
) -> None:
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, path.stem, inputs, [output], initializers)
    model = helper.make_model(
        graph,
        producer_name="cosyvoice_runtime",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
