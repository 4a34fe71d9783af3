"""The vocoder's F0 predictor as a graph, in float64: phase is the running sum of F0."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_vocoder import VocoderConfig
from cosyvoice_runtime.onnx import layers
from cosyvoice_runtime.onnx.graph import DOUBLE, FLOAT, Graph, Value
from cosyvoice_runtime.onnx.wave_graphs import HIFT_F0


def f0_graph(weights: Mapping[str, Array], config: VocoderConfig) -> onnx.ModelProto:
    """``mel`` ``[T, bins]`` float32 of one utterance to ``f0`` ``[T]`` float64 in Hz.

    Besides, what merges the harmonics, float32: ``source_weight`` ``[harmonics]``, ``source_bias`` ``[1]``.

    Args:
        weights: of the vocoder, by their names in it.
    """
    graph = Graph(HIFT_F0, "float64", weights)
    mel = graph.input("mel", FLOAT, ("frames", config.mel_bins))
    hidden = graph.cast(mel, DOUBLE)
    for layer, ahead in enumerate(config.f0_lookaheads):
        hidden = _elu(graph, _conv(graph, f"f0_predictor.condnet.{2 * layer}", hidden, ahead))
    f0 = graph.node("Abs", layers.linear(graph, "f0_predictor.classifier", hidden))
    graph.output("f0", graph.reshape(f0, (-1,)), ("frames",))
    weight = graph.weight("m_source.l_linear.weight", weights["m_source.l_linear.weight"][0], FLOAT)
    graph.output("source_weight", weight, (config.num_harmonics + 1,))
    graph.output("source_bias", graph.weight("m_source.l_linear.bias", onnx_type=FLOAT), (1,))
    return graph.model()


def _conv(graph: Graph, name: str, x: Value, ahead: int) -> Value:
    """Length-keeping convolution over ``x [T, channels]`` as one matrix product."""
    weight = graph.weights[f"{name}.weight"]
    outputs, _, kernel = weight.shape
    last = kernel - 1
    padded = graph.node("Pad", x, graph.integers(last - ahead, 0, ahead, 0))
    taps = [graph.slice(padded, 0, tap, tap - last) for tap in range(last)]
    windows = graph.concat([*taps, graph.slice(padded, 0, last, 2**31)], 1)
    weight = weight.swapaxes(1, 2).reshape(outputs, -1)
    return layers.affine(graph, name, weight, graph.weights[f"{name}.bias"], windows)


def _elu(graph: Graph, x: Value) -> Value:
    negative = graph.node("Exp", graph.node("Min", x, graph.constant(0.0, DOUBLE))) - 1.0
    return graph.node("Max", x, graph.constant(0.0, DOUBLE)) + negative
