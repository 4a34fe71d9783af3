"""What comes before the flow's steps, as a graph: tokens and a speaker to conditions of the estimator."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config import FlowConfig
from cosyvoice_runtime.compiled.export import layers
from cosyvoice_runtime.compiled.export.encoder import Conformer
from cosyvoice_runtime.compiled.export.graph import FLOAT, INT64, Graph, Value

NAME = "flow_encoder_cpu"
SMALLEST_NORM = 1e-12
"""Of a speaker embedding, to divide by."""


def encoder_graph(weights: Mapping[str, Array], config: FlowConfig) -> onnx.ModelProto:
    """Inputs: ``tokens`` int64 ``[B, T + lookahead]``, ``speaker`` ``[B, D]``, and all but ``x`` of
    :func:`cosyvoice_runtime.compiled.export.encoder.encoder_graph`. Outputs: ``mu`` ``[B, frames, mel]``,
    ``voice`` ``[B, mel]``, and what both stacks carry.

    Args:
        weights: of the flow, by their names in it.
    """
    graph = Graph(NAME, "float32", weights)
    tokens = graph.input("tokens", INT64, ("batch", "padded"))
    speaker = graph.input("speaker", FLOAT, ("batch", config.speaker_dim))
    table = graph.weight("token_embedding.weight")
    network = Conformer(graph, config, "encoder.")
    hidden = network.hidden(graph.node("Gather", table, tokens, axis=0))
    mu = layers.linear(graph, "encoder_projection", hidden)
    graph.output("mu", mu, ("batch", "new_frames", config.mel_bins))
    voice = layers.linear(graph, "speaker", _normalised(graph, speaker))
    graph.output("voice", voice, ("batch", config.mel_bins))
    network.ports()
    return graph.model()


def _normalised(graph: Graph, x: Value) -> Value:
    norm = graph.node("ReduceL2", x, graph.integers(1))
    return x / graph.node("Max", norm, graph.constant(SMALLEST_NORM, FLOAT))
