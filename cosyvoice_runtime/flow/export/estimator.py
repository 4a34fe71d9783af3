"""The flow's estimator as a graph; mirrors :mod:`cosyvoice_runtime.flow.torch.estimator`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_flow import EstimatorConfig
from cosyvoice_runtime.flow.export.carried import Carried
from cosyvoice_runtime.flow.past_layout import PastLayout
from cosyvoice_runtime.onnx import layers
from cosyvoice_runtime.onnx.graph import BOOL, INT64, Graph, Value

NAME = "flow_estimator"
CONV_TAPS = 3


def estimator_graph(
    weights: Mapping[str, Array], config: EstimatorConfig, mel_bins: int, dtype: str
) -> onnx.ModelProto:
    """Velocity of new frames after frames done before.

    Inputs: ``x``, ``mu``, ``condition`` ``[B, T, mel]`` and ``speaker`` ``[B, mel]``; ``time_biases``
    ``[stages, C]`` of :meth:`~cosyvoice_runtime.flow.torch.estimator.Estimator.time_biases`; ``visible``
    bool ``[B, 1, T, S + T]``; ``ends`` int64 ``[B]``; keys, values and tails as in :class:`Carried`. Outputs:
    ``velocity`` ``[B, T, mel]``, and what :class:`Carried` hands on.

    Args:
        weights: of the estimator, by their names in it.
    """
    graph = Graph(NAME, dtype, weights)
    mel_shape = ("batch", "new", mel_bins)
    x, mu, condition = (graph.input(name, graph.type, mel_shape) for name in ("x", "mu", "condition"))
    speaker = graph.input("speaker", graph.type, ("batch", mel_bins))
    biases = graph.input("time_biases", graph.type, (config.num_stages, config.channels))
    visible = graph.input("visible", BOOL, ("batch", 1, "new", "all"))
    ends = graph.input("ends", INT64, ("batch",))
    layout = PastLayout(config.num_heads, config.head_dim)
    carried = Carried(graph, layout, "", ("batch", "past", "new"), ends)
    hidden = layers.hidden_scores(graph, visible)
    everywhere = graph.node("Expand", graph.unsqueeze(speaker, 1), graph.node("Shape", x, onnx_type=INT64))
    packed = graph.concat([x, mu, everywhere, condition], 2)
    velocity = UNet(graph, config, carried, hidden).velocity(packed, biases)
    graph.output("velocity", velocity, mel_shape)
    carried.ports()
    return graph.model()


class EstimatorPast(Protocol):
    """Inputs that a graph of an estimator asks for the frames before its input."""

    def extend(self, x: Value, frames: int, channels: int) -> Value:
        """Put the ``frames`` frames before ``x [B, T, C]`` in front of it."""

    def attend(self, packed: Value, hidden: Value) -> Value:
        """Attention of the next layer, of queries, keys and values in one: ``[B, T, H * D]``."""


class UNet:
    """Adds the network to a graph.

    Args:
        hidden: added to the scores of attention.
    """

    def __init__(self, graph: Graph, config: EstimatorConfig, past: EstimatorPast, hidden: Value) -> None:
        self.graph, self.config, self.past, self.hidden = graph, config, past, hidden

    def velocity(self, packed: Value, biases: Value) -> Value:
        """``[B, T, mel]`` of noisy mel and conditions ``[B, T, 4 * mel]`` and ``[stages, C]``."""
        graph, channels = self.graph, self.config.channels
        bias = [graph.slice(biases, 0, index, index + 1) for index in range(self.config.num_stages)]
        skip = self._stage("down", packed, self.config.in_channels, bias[0])
        hidden = self._conv("down_conv", skip, channels)
        for index in range(self.config.num_mid_stages):
            hidden = self._stage(f"mid.{index}", hidden, channels, bias[1 + index])
        hidden = self._stage("up", graph.concat([hidden, skip], 2), 2 * channels, bias[-1])
        hidden = self._conv("up_conv", hidden, channels)
        hidden = self._conv_block("final", hidden, channels)
        return layers.linear(graph, "projection", hidden)

    def _stage(self, name: str, x: Value, channels: int, bias: Value) -> Value:
        x = self._resnet(f"{name}.resnet", x, channels, bias)
        for index in range(self.config.blocks_per_stage):
            x = self._transformer(f"{name}.blocks.{index}", x)
        return x

    def _resnet(self, name: str, x: Value, channels: int, bias: Value) -> Value:
        hidden = self._conv_block(f"{name}.first", x, channels) + self.graph.unsqueeze(bias, 1)
        hidden = self._conv_block(f"{name}.second", hidden, self.config.channels)
        return hidden + layers.linear(self.graph, f"{name}.shortcut", x)

    def _conv_block(self, name: str, x: Value, channels: int) -> Value:
        convolved = self._conv(f"{name}.conv", x, channels)
        return layers.mish(self.graph, layers.layer_norm(self.graph, f"{name}.norm", convolved))

    def _conv(self, name: str, x: Value, channels: int) -> Value:
        window = layers.windows(self.graph, self.past.extend(x, CONV_TAPS - 1, channels), CONV_TAPS)
        return layers.linear(self.graph, f"{name}.window", window)

    def _transformer(self, name: str, x: Value) -> Value:
        graph = self.graph
        normed = layers.layer_norm(graph, f"{name}.norm_attention", x)
        mixed = self.past.attend(layers.linear(graph, f"{name}.qkv", normed), self.hidden)
        x = x + layers.linear(graph, f"{name}.out", mixed)
        normed = layers.layer_norm(graph, f"{name}.norm_feed_forward", x)
        widened = layers.gelu(graph, layers.linear(graph, f"{name}.widen", normed))
        return x + layers.linear(graph, f"{name}.narrow", widened)
