"""What a time of the solver adds to each stage of the estimator, as a graph; run once for all steps."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_flow import EstimatorConfig
from cosyvoice_runtime.onnx import layers
from cosyvoice_runtime.onnx.graph import FLOAT, Graph, Value
from cosyvoice_runtime.onnx.wave_graphs import FLOW_TIMES

TIME_SCALE = 1000.0


def times_graph(weights: Mapping[str, Array], config: EstimatorConfig) -> onnx.ModelProto:
    """``times`` ``[n]`` in [0, 1] to ``biases`` ``[n, stages, C]``.

    Args:
        weights: of the estimator, by their names in it.
    """
    graph = Graph(FLOW_TIMES, "float32", weights)
    hidden = layers.silu(graph, layers.linear(graph, "time_in", sinusoid(graph, config.in_channels)))
    embedding = layers.mish(graph, layers.linear(graph, "time_out", hidden))
    names = ["down", *(f"mid.{index}" for index in range(config.num_mid_stages)), "up"]
    stages = [graph.unsqueeze(layers.linear(graph, f"{name}.resnet.time", embedding), 1) for name in names]
    graph.output("biases", graph.concat(stages, 1), ("n", config.num_stages, config.channels))
    return graph.model()


def sinusoid(graph: Graph, width: int) -> Value:
    """Input ``times`` ``[n]`` as sines, then cosines, ``[n, width]``."""
    times = graph.input("times", FLOAT, ("n",))
    half = width // 2
    frequency = np.exp(np.arange(half, dtype=np.float32) * np.float32(-math.log(10000.0) / (half - 1)))
    angle = graph.unsqueeze(times * TIME_SCALE, 1) * graph.constant(frequency, FLOAT)
    return graph.concat([graph.node("Sin", angle), graph.node("Cos", angle)], 1)
