"""Graphs of the networks before the flow's steps: tokens and a speaker to conditions; times to biases."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_flow import EstimatorConfig, FlowConfig
from cosyvoice_runtime.flow.export.encoder import CarriedTails, Conformer, look_ahead
from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.onnx import layers
from cosyvoice_runtime.onnx.graph import BOOL, FLOAT, INT64, Graph, Value
from cosyvoice_runtime.onnx.session import FLOW_ENCODER, FLOW_TIMES

SMALLEST_NORM = 1e-12
"""The smallest norm of a speaker embedding to divide by."""


def encoder_graph(weights: Mapping[str, Array], config: FlowConfig) -> onnx.ModelProto:
    """Inputs: ``tokens`` int64 ``[B, T + lookahead]``, ``speaker`` ``[B, D]``, and all but ``x`` of
    :func:`cosyvoice_runtime.flow.export.encoder.encoder_graph`. Outputs: ``mu`` ``[B, frames, mel]``,
    ``voice`` ``[B, mel]``, and what both stacks carry.

    Args:
        weights: of the flow, by their names in it.
    """
    graph = Graph(FLOW_ENCODER, "float32", weights)
    tokens = graph.input("tokens", INT64, ("batch", "padded"))
    speaker = graph.input("speaker", FLOAT, ("batch", config.speaker_dim))
    network = Conformer(graph, config, "encoder.")
    hidden = network.hidden(_embedded(graph, tokens))
    mu = layers.linear(graph, "encoder_projection", hidden)
    _conditions(graph, config, mu, speaker)
    network.ports()
    return graph.model()


def lookahead_graph(weights: Mapping[str, Array], config: FlowConfig) -> onnx.ModelProto:
    """The graph of CosyVoice3's look-ahead layer: :func:`encoder_graph` with the inputs ``tokens``,
    ``speaker``, ``present``, ``ends`` and ``token_tails`` alone."""
    graph = Graph(FLOW_ENCODER, "float32", weights)
    tokens = graph.input("tokens", INT64, ("batch", "padded"))
    speaker = graph.input("speaker", FLOAT, ("batch", config.speaker_dim))
    present = graph.input("present", BOOL, ("batch", "padded"))
    ends = graph.input("ends", INT64, ("batch",))
    past = CarriedTails(graph, PastLayout(1, 1), "token_", "batch", ends)
    embedded = _embedded(graph, tokens) * graph.unsqueeze(graph.cast(present, FLOAT), 2)
    channels = len(weights["encoder.look_ahead.right.bias"])
    mixed = look_ahead(graph, "encoder.look_ahead", embedded, config.lookahead_tokens, channels, past)
    repeated = graph.concat([mixed] * config.frames_per_token, 2)
    _conditions(graph, config, graph.reshape(repeated, (0, -1, config.mel_bins)), speaker)
    past.ports()
    return graph.model()


def _embedded(graph: Graph, tokens: Value) -> Value:
    embedded: Value = graph.node("Gather", graph.weight("token_embedding.weight"), tokens, axis=0)
    return embedded


def _conditions(graph: Graph, config: FlowConfig, mu: Value, speaker: Value) -> None:
    """Outputs ``mu`` and ``voice``."""
    graph.output("mu", mu, ("batch", "new_frames", config.mel_bins))
    voice = layers.linear(graph, "speaker", _normalised(graph, speaker))
    graph.output("voice", voice, ("batch", config.mel_bins))


def _normalised(graph: Graph, x: Value) -> Value:
    norm = graph.node("ReduceL2", x, graph.integers(1))
    return x / graph.node("Max", norm, graph.constant(SMALLEST_NORM, FLOAT))


TIME_SCALE = 1000.0


def times_graph(weights: Mapping[str, Array], config: EstimatorConfig) -> onnx.ModelProto:
    """``times`` ``[n]`` in [0, 1] to ``biases`` ``[n, stages, C]``; for mean velocities also ``ends``, alike.

    Args:
        weights: of the estimator, by their names in it.
    """
    graph = Graph(FLOW_TIMES, "float32", weights)
    names = ["times", "ends"] if config.meanflow else ["times"]
    embeddings = [_time_embedding(graph, sinusoid(graph, config.in_channels, name)) for name in names]
    embedding = embeddings[0]
    if config.meanflow:
        embedding = graph.concat(embeddings, 1) @ graph.weight(
            "time_mixer.weight", graph.weights["time_mixer.weight"].T
        )
    embedding = layers.mish(graph, embedding)
    names = ["down", *(f"mid.{index}" for index in range(config.num_mid_stages)), "up"]
    stages = [graph.unsqueeze(layers.linear(graph, f"{name}.resnet.time", embedding), 1) for name in names]
    graph.output("biases", graph.concat(stages, 1), ("n", config.num_stages, config.channels))
    return graph.model()


def _time_embedding(graph: Graph, sinusoid: Value) -> Value:
    hidden = layers.silu(graph, layers.linear(graph, "time_in", sinusoid))
    return layers.linear(graph, "time_out", hidden)


def sinusoid(graph: Graph, width: int, name: str = "times") -> Value:
    """The input ``name`` ``[n]``, times, as sines, then cosines, ``[n, width]``."""
    times = graph.input(name, FLOAT, ("n",))
    half = width // 2
    frequency = np.exp(np.arange(half, dtype=np.float32) * np.float32(-math.log(10000.0) / (half - 1)))
    angle = graph.unsqueeze(times * TIME_SCALE, 1) * graph.constant(frequency, FLOAT)
    return graph.concat([graph.node("Sin", angle), graph.node("Cos", angle)], 1)
