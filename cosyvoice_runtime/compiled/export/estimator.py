"""The flow's estimator as a graph; mirrors :mod:`cosyvoice_runtime.flow.estimator`."""

from __future__ import annotations

import math

import onnx

from cosyvoice_runtime.checkpoint.config import EstimatorConfig
from cosyvoice_runtime.compiled.export import layers
from cosyvoice_runtime.compiled.export.carried import Carried
from cosyvoice_runtime.compiled.export.graph import BOOL, INT64, Graph, Value
from cosyvoice_runtime.flow.estimator import (
    CONV_TAPS,
    ConvBlock,
    Estimator,
    ResnetBlock,
    TransformerBlock,
    UNetStage,
)
from cosyvoice_runtime.flow.layers import CausalConv

NAME = "flow_estimator"


def estimator_graph(
    estimator: Estimator, config: EstimatorConfig, mel_bins: int, dtype: str
) -> onnx.ModelProto:
    """Velocity of new frames after frames done before.

    Inputs: ``x``, ``mu``, ``condition`` ``[B, T, mel]`` and ``speaker`` ``[B, mel]``; ``time_biases``
    ``[stages, C]`` of :meth:`Estimator.time_biases <cosyvoice_runtime.flow.estimator.Estimator.time_biases>`;
    ``visible`` bool ``[B, 1, T, S + T]``; ``ends`` int64 ``[B]``; keys, values and tails as in
    :class:`Carried`. Outputs: ``velocity`` ``[B, T, mel]``, and what :class:`Carried` hands on.
    """
    return _EstimatorGraph(config, mel_bins, dtype).build(estimator)


class _EstimatorGraph:
    def __init__(self, config: EstimatorConfig, mel_bins: int, dtype: str) -> None:
        self.config, self.mel_bins = config, mel_bins
        self.graph = Graph(NAME, dtype)

    def build(self, estimator: Estimator) -> onnx.ModelProto:
        graph, config = self.graph, self.config
        mel_shape = ("batch", "new", self.mel_bins)
        x, mu, condition = (graph.input(name, graph.type, mel_shape) for name in ("x", "mu", "condition"))
        speaker = graph.input("speaker", graph.type, ("batch", self.mel_bins))
        biases = graph.input("time_biases", graph.type, (config.num_stages, config.channels))
        visible = graph.input("visible", BOOL, ("batch", 1, "new", "all"))
        ends = graph.input("ends", INT64, ("batch",))
        self.carried = Carried(graph, estimator.layout, "", ("batch", "past", "new"), ends)
        self.hidden = layers.hidden_scores(graph, visible)
        everywhere = graph.node(
            "Expand", graph.unsqueeze(speaker, 1), graph.node("Shape", x, onnx_type=INT64)
        )
        packed = graph.concat([x, mu, everywhere, condition], 2)
        velocity = self._network(estimator, packed, biases)
        graph.output("velocity", velocity, mel_shape)
        self.carried.outputs()
        return graph.model()

    def _network(self, estimator: Estimator, packed: Value, biases: Value) -> Value:
        graph = self.graph
        bias = [graph.slice(biases, 0, index, index + 1) for index in range(self.config.num_stages)]
        skip = self._stage("down", estimator.down, packed, bias[0])
        hidden = self._conv("down_conv", estimator.down_conv, skip)
        for index, stage in enumerate(layers.members(estimator.mid, UNetStage)):
            hidden = self._stage(f"mid.{index}", stage, hidden, bias[1 + index])
        hidden = self._stage("up", estimator.up, graph.concat([hidden, skip], 2), bias[-1])
        hidden = self._conv("up_conv", estimator.up_conv, hidden)
        hidden = self._conv_block("final", estimator.final, hidden)
        return layers.linear(graph, "projection", estimator.projection, hidden)

    def _stage(self, name: str, stage: UNetStage, x: Value, bias: Value) -> Value:
        x = self._resnet(f"{name}.resnet", stage.resnet, x, bias)
        for index, block in enumerate(layers.members(stage.blocks, TransformerBlock)):
            x = self._transformer(f"{name}.blocks.{index}", block, x)
        return x

    def _resnet(self, name: str, block: ResnetBlock, x: Value, bias: Value) -> Value:
        hidden = self._conv_block(f"{name}.first", block.first, x) + self.graph.unsqueeze(bias, 1)
        hidden = self._conv_block(f"{name}.second", block.second, hidden)
        return hidden + layers.linear(self.graph, f"{name}.shortcut", block.shortcut, x)

    def _conv_block(self, name: str, block: ConvBlock, x: Value) -> Value:
        convolved = self._conv(f"{name}.conv", block.conv, x)
        return layers.mish(self.graph, layers.layer_norm(self.graph, f"{name}.norm", block.norm, convolved))

    def _conv(self, name: str, conv: CausalConv, x: Value) -> Value:
        window = layers.windows(self.graph, self.carried.extend(conv.tail, x), CONV_TAPS)
        return layers.linear(self.graph, f"{name}.window", conv.window, window)

    def _transformer(self, name: str, block: TransformerBlock, x: Value) -> Value:
        graph = self.graph
        normed = layers.layer_norm(graph, f"{name}.norm_attention", block.norm_attention, x)
        x = x + layers.linear(graph, f"{name}.out", block.out, self._attention(name, block, normed))
        normed = layers.layer_norm(graph, f"{name}.norm_feed_forward", block.norm_feed_forward, x)
        widened = layers.gelu(graph, layers.linear(graph, f"{name}.widen", block.widen, normed))
        return x + layers.linear(graph, f"{name}.narrow", block.narrow, widened)

    def _attention(self, name: str, block: TransformerBlock, x: Value) -> Value:
        graph, heads, head_dim = self.graph, self.config.num_heads, self.config.head_dim
        packed = layers.linear(graph, f"{name}.qkv", block.qkv, x)
        queries, new_keys, new_values = layers.split_heads(graph, packed, heads, head_dim)
        keys, values = self.carried.keys_values(block.attention, new_keys, new_values)
        queries = layers.heads_first(graph, queries * (1 / math.sqrt(head_dim)))
        scores = graph.wide(queries @ graph.transpose(keys, 0, 2, 3, 1)) + self.hidden
        return layers.attend(graph, scores, values, heads * head_dim)
