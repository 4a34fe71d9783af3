"""The estimators of the flow as graphs; they mirror those of :mod:`cosyvoice_runtime.flow.torch`.

In CosyVoice3's, what runs through all blocks and is added up there stays float32, and so does what the time
scales and gates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_flow import DiTConfig, EstimatorConfig
from cosyvoice_runtime.checkpoint.schema_flow import POSITION_GROUPS, POSITION_KERNEL
from cosyvoice_runtime.flow.export.encoder import Carried
from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.onnx import layers
from cosyvoice_runtime.onnx.graph import BOOL, FLOAT, INT64, Graph, Value

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
    bias = [graph.slice(biases, 0, index, index + 1) for index in range(config.num_stages)]
    network = _CarriedUNet(graph, config, carried, hidden)
    velocity = network.network(packed, [graph.unsqueeze(each, 1) for each in bias])
    graph.output("velocity", velocity, mel_shape)
    carried.ports()
    return graph.model()


class UNetGraph(ABC):
    """Adds CosyVoice2's estimator to a graph; the kinds of graph differ in what they compute it with."""

    def __init__(self, graph: Graph, config: EstimatorConfig) -> None:
        self.graph, self.config = graph, config

    def network(self, packed: Value, bias: Sequence[Value]) -> Value:
        """Velocity of noisy mel and conditions, and of the time's addend for each stage."""
        channels = self.config.channels
        skip = self._stage("down", packed, self.config.in_channels, bias[0])
        hidden = self._conv("down_conv", skip, channels)
        for index in range(self.config.num_mid_stages):
            hidden = self._stage(f"mid.{index}", hidden, channels, bias[1 + index])
        hidden = self._stage("up", self.graph.concat([hidden, skip], -1), 2 * channels, bias[-1])
        hidden = self._conv("up_conv", hidden, channels)
        hidden = self._conv_block("final", hidden, channels)
        return self._linear("projection", hidden)

    def _stage(self, name: str, x: Value, channels: int, bias: Value) -> Value:
        hidden = self._conv_block(f"{name}.resnet.first", x, channels) + bias
        hidden = self._conv_block(f"{name}.resnet.second", hidden, self.config.channels)
        x = hidden + self._linear(f"{name}.resnet.shortcut", x)
        for index in range(self.config.blocks_per_stage):
            x = self._transformer(f"{name}.blocks.{index}", x)
        return x

    def _conv_block(self, name: str, x: Value, channels: int) -> Value:
        convolved = self._conv(f"{name}.conv", x, channels)
        return self._mish(layers.layer_norm(self.graph, f"{name}.norm", convolved))

    def _transformer(self, name: str, x: Value) -> Value:
        mixed = self._attention(name, layers.layer_norm(self.graph, f"{name}.norm_attention", x))
        x = x + self._linear(f"{name}.out", mixed)
        normed = layers.layer_norm(self.graph, f"{name}.norm_feed_forward", x)
        return x + self._linear(f"{name}.narrow", self._widened(f"{name}.widen", normed))

    @abstractmethod
    def _conv(self, name: str, x: Value, channels: int) -> Value:
        """Causal convolution of ``CONV_TAPS`` frames over ``channels``."""

    @abstractmethod
    def _attention(self, name: str, x: Value) -> Value:
        """Mixed values of the next layer."""

    @abstractmethod
    def _mish(self, x: Value) -> Value: ...

    @abstractmethod
    def _linear(self, name: str, x: Value) -> Value: ...

    @abstractmethod
    def _widened(self, name: str, x: Value) -> Value:
        """A linear layer and GELU."""


class _CarriedUNet(UNetGraph):
    """The estimator over ``[B, T, C]``.

    Args:
        hidden: added to the scores of attention.
    """

    def __init__(self, graph: Graph, config: EstimatorConfig, past: Carried, hidden: Value) -> None:
        super().__init__(graph, config)
        self.past, self.hidden = past, hidden

    def _conv(self, name: str, x: Value, channels: int) -> Value:
        window = layers.windows(self.graph, self.past.extend(x, CONV_TAPS - 1, channels), CONV_TAPS)
        return layers.linear(self.graph, f"{name}.window", window)

    def _attention(self, name: str, x: Value) -> Value:
        return self.past.attend(layers.linear(self.graph, f"{name}.qkv", x), self.hidden)

    def _mish(self, x: Value) -> Value:
        return layers.mish(self.graph, x)

    def _linear(self, name: str, x: Value) -> Value:
        return layers.linear(self.graph, name, x)

    def _widened(self, name: str, x: Value) -> Value:
        return layers.gelu(self.graph, layers.linear(self.graph, name, x))


NORM_EPS = 1e-6
ROTARY_BASE = 10_000.0
POSITION_CONVS = 2
BLOCK_MODULATIONS, FINAL_MODULATIONS = 6, 2
STARTS = "starts"


def dit_graph(weights: Mapping[str, Array], config: DiTConfig, mel_bins: int, dtype: str) -> onnx.ModelProto:
    """Velocity of new frames after frames done before.

    Inputs and outputs are those of :func:`~cosyvoice_runtime.flow.export.estimator.estimator_graph`, but
    for ``time_biases`` ``[6 * blocks + 2, C]`` of :meth:`DiT.time_biases
    <cosyvoice_runtime.flow.torch.dit.DiT.time_biases>`, and with ``starts`` int64 ``[B]``, the frames of each
    utterance before the new ones: keys are turned by the number of their frame.

    Args:
        weights: of the estimator, by their names in it.
    """
    graph = Graph(NAME, dtype, weights)
    mel_shape = ("batch", "new", mel_bins)
    x, mu, condition = (graph.input(name, graph.type, mel_shape) for name in ("x", "mu", "condition"))
    speaker = graph.input("speaker", graph.type, ("batch", mel_bins))
    modulations = BLOCK_MODULATIONS * config.depth + FINAL_MODULATIONS
    biases = graph.input("time_biases", graph.type, (modulations, config.width))
    visible = graph.input("visible", BOOL, ("batch", 1, "new", "all"))
    ends = graph.input("ends", INT64, ("batch",))
    starts = graph.input(STARTS, INT64, ("batch",))
    carried = Carried(
        graph, PastLayout(config.num_heads, config.head_dim), "", ("batch", "past", "new"), ends
    )
    hidden = layers.hidden_scores(graph, visible)
    voice = graph.node("Expand", graph.unsqueeze(speaker, 1), graph.node("Shape", x, onnx_type=INT64))
    packed = graph.concat([x, condition, mu, voice], 2)
    network = Transformer(graph, config, carried, hidden, HeadRotation.of(graph, starts, x, config.head_dim))
    graph.output("velocity", network.velocity(packed, biases), mel_shape)
    carried.ports()
    return graph.model()


class HeadRotation:
    """Rotation of neighbouring channels of a head by the number of its frame.

    Attributes:
        cos, sin: float32 ``[B, T, 1, D]``.
        swap: ``[D, D]``, which makes ``(-b, a)`` of each pair ``(a, b)``.
    """

    def __init__(self, cos: Value, sin: Value, swap: Value) -> None:
        self.cos, self.sin, self.swap = cos, sin, swap

    @classmethod
    def of(cls, graph: Graph, starts: Value, x: Value, head_dim: int) -> HeadRotation:
        """Of frames ``starts [B]`` and after, as many as ``x [B, T, C]`` has."""
        exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
        frequencies = np.repeat(np.float32(1.0) / np.float32(ROTARY_BASE) ** exponents, 2)
        frames = graph.unsqueeze(starts, 1) + graph.arange(graph.size(x, 1))
        angles = graph.unsqueeze(graph.wide(frames), 2, 3) * graph.constant(frequencies, FLOAT)
        swap = np.zeros((head_dim, head_dim))
        for channel in range(0, head_dim, 2):
            swap[channel, channel + 1], swap[channel + 1, channel] = 1.0, -1.0
        return cls(graph.node("Cos", angles), graph.node("Sin", angles), graph.constant(swap, FLOAT))

    def first_head(self, x: Value, heads: int) -> Value:
        """``x [B, T, H, D]`` with its first head turned."""
        graph = x.graph
        first = graph.wide(graph.slice(x, 2, 0, 1))
        turned = graph.narrow(first * self.cos + (first @ self.swap) * self.sin)
        return graph.concat([turned, graph.slice(x, 2, 1, heads)], 2) if heads > 1 else turned


class TransformerPast(Protocol):
    """Inputs that a graph of the transformer asks for the frames before its input."""

    def extend(self, x: Value, frames: int, channels: int) -> Value:
        """Put the ``frames`` frames before ``x [B, T, C]`` in front of it."""

    def attend_heads(self, queries: Value, new_keys: Value, new_values: Value, hidden: Value) -> Value:
        """Attention of the next layer, of queries, keys and values ``[B, T, H, D]``: ``[B, T, H * D]``."""


class Transformer:
    """Adds the network to a graph.

    Args:
        hidden: added to the scores of attention.
    """

    def __init__(
        self, graph: Graph, config: DiTConfig, past: TransformerPast, hidden: Value, rotation: HeadRotation
    ) -> None:
        self.graph, self.config, self.past, self.hidden, self.rotation = graph, config, past, hidden, rotation

    def velocity(self, packed: Value, biases: Value) -> Value:
        """``[B, T, mel]`` of noisy mel and conditions ``[B, T, 4 * mel]`` and ``[6 * blocks + 2, C]``."""
        graph, depth = self.graph, self.config.depth
        wide = graph.wide(biases)
        vectors = [graph.slice(wide, 0, index, index + 1) for index in range(BLOCK_MODULATIONS * depth + 2)]
        projected = layers.linear(graph, "input", packed)
        order = projected
        for index in range(POSITION_CONVS):
            order = self._grouped_conv(f"positions.{index}.conv", order)
        stream = graph.wide(projected) + graph.wide(order)
        for index in range(depth):
            given = vectors[BLOCK_MODULATIONS * index : BLOCK_MODULATIONS * (index + 1)]
            stream = self._block(f"blocks.{index}", stream, given)
        scale, shift = vectors[-2:]
        return layers.linear(graph, "projection", self._modulated(stream, scale, shift))

    def _grouped_conv(self, name: str, x: Value) -> Value:
        graph = self.graph
        extended = self.past.extend(x, POSITION_KERNEL - 1, self.config.width)
        weight, bias = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
        convolved = graph.node(
            "Conv", graph.transpose(extended, 0, 2, 1), weight, bias, group=POSITION_GROUPS
        )
        return layers.mish(graph, graph.transpose(convolved, 0, 2, 1))

    def _block(self, name: str, stream: Value, modulations: list[Value]) -> Value:
        graph = self.graph
        shift, scale, gate, wide_shift, wide_scale, wide_gate = modulations
        mixed = self._attention(name, self._modulated(stream, scale, shift))
        stream = stream + gate * graph.wide(mixed)
        widened = layers.linear(graph, f"{name}.widen", self._modulated(stream, wide_scale, wide_shift))
        narrowed = layers.linear(graph, f"{name}.narrow", layers.tanh_gelu(graph, widened))
        return stream + wide_gate * graph.wide(narrowed)

    def _attention(self, name: str, x: Value) -> Value:
        graph, heads = self.graph, self.config.num_heads
        packed = layers.linear(graph, f"{name}.qkv", x)
        queries, keys, values = layers.split_heads(graph, packed, heads, self.config.head_dim)
        queries, keys = (self.rotation.first_head(each, heads) for each in (queries, keys))
        mixed = self.past.attend_heads(queries, keys, values, self.hidden)
        return layers.linear(graph, f"{name}.out", mixed)

    def _modulated(self, stream: Value, scale: Value, shift: Value) -> Value:
        """The norm of ``[B, T, C]`` in float32, scaled and shifted; in the graph's type."""
        normed = layers.plain_norm(self.graph, stream, self.config.width, NORM_EPS)
        return self.graph.narrow(normed * (scale + 1.0) + shift)
