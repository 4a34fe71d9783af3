"""The flow's estimator as a graph for ONNX Runtime's kernels of a CPU.

What :mod:`cosyvoice_runtime.compiled.export.estimator` computes, in fewer and fused operators, for small
products take no longer than what stands between them: frames of all rows in one matrix, so that a product
adds its bias; attention in one. (The runtime's one operator for sum and norm takes longer than the two.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config import EstimatorConfig
from cosyvoice_runtime.compiled.export import layers
from cosyvoice_runtime.compiled.export.graph import FLOAT, INT64, ONNX_TYPES, Graph, Value
from cosyvoice_runtime.onnx_cpu.integer_product_graph import FUSED, IntegerProducts
from cosyvoice_runtime.onnx_cpu.wave_graphs import FLOW_ESTIMATOR, EstimatorFormats

ROBUST = re.compile(r"mid\.|(down|up)\.blocks\.")
"""Layers that lose little in 8 bits: all but the convolutions next to the mel and the noise."""
CONV_TAPS = 3
TAIL = CONV_TAPS - 1
MOST_EXPONENT = 30.0
"""Above it mish is its argument, to float32."""


def tail_channels(config: EstimatorConfig) -> list[int]:
    """Input channels of the convolutions, in their order."""
    channels = config.channels
    mid = [channels, channels] * config.num_mid_stages
    return [config.in_channels, channels, channels, *mid, 2 * channels, channels, channels, channels]


def estimator_graph(
    weights: Mapping[str, Array], config: EstimatorConfig, mel_bins: int, formats: EstimatorFormats
) -> onnx.ModelProto:
    """Velocity of new frames after frames done before.

    Inputs: ``x`` ``[B, T, mel]``; ``conditions`` ``[B, T, in - mel]``, all else that the network reads;
    ``time_biases`` ``[stages, C]``; ``bias`` ``[B, 1, T, S + T]``, added to attention's scores; ``last``
    int64 ``[B, 2, 2]``, row and place of its last two frames, counted from the two before the new ones;
    ``tails`` ``[B, 2, N]``, those two; ``keys.0``, ``values.0`` and so on ``[B, H, S, D]``.
    Outputs: ``velocity`` ``[B, T, mel]``, ``new_tails`` ``[B, 2, N]``, and ``new`` ``[2A, B, T, H * D]``,
    keys and values of the new frames by turns. Keys and values go in and out in the format of pages; the call
    sees its own as later ones will.

    Args:
        weights: of the estimator, by their names in it.
        formats: that of weights is of the layers that ``ROBUST`` names.
    """
    return _EstimatorGraph(weights, config, mel_bins, formats).build()


class _EstimatorGraph:
    def __init__(
        self,
        weights: Mapping[str, Array],
        config: EstimatorConfig,
        mel_bins: int,
        formats: EstimatorFormats,
    ) -> None:
        self.config, self.mel_bins, self.formats = config, mel_bins, formats
        self.page_type = ONNX_TYPES[formats.pages]
        self.graph = Graph(FLOW_ESTIMATOR, "float32", weights)
        self._integers = IntegerProducts(self.graph)
        self.inner = config.num_heads * config.head_dim
        self.new: list[Value] = []
        self.new_tails: list[Value] = []

    def build(self) -> onnx.ModelProto:
        graph, config, bins = self.graph, self.config, self.mel_bins
        x = graph.input("x", FLOAT, ("batch", "new", bins))
        conditions = graph.input("conditions", FLOAT, ("batch", "new", config.in_channels - bins))
        time_biases = graph.input("time_biases", FLOAT, (config.num_stages, config.channels))
        self.bias = graph.input("bias", FLOAT, ("batch", 1, "new", "all"))
        self.last = graph.input("last", INT64, ("batch", TAIL, 2))
        sizes = tail_channels(config)
        tails = graph.input("tails", FLOAT, ("batch", TAIL, sum(sizes)))
        self.tails = graph.node("Split", tails, graph.integers(*sizes), outputs=len(sizes), axis=2)
        self.rows = graph.size(x, 0)
        velocity = self._network(graph.concat([x, conditions], 2), time_biases)
        graph.output("velocity", self._by_row(velocity, bins), ("batch", "new", bins))
        graph.output("new_tails", graph.concat(self.new_tails, 2), ("batch", TAIL, sum(sizes)))
        new = graph.concat([graph.unsqueeze(value, 0) for value in self.new], 0)
        graph.output("new", new, (len(self.new), "batch", "new", self.inner))
        return graph.model()

    def _network(self, packed: Value, time_biases: Value) -> Value:
        graph, config = self.graph, self.config
        stages = config.num_stages
        biases = graph.node("Split", time_biases, outputs=stages, axis=0, num_outputs=stages)
        hidden = self._flat(packed, config.in_channels)
        skip = self._stage("down", hidden, config.in_channels, biases[0])
        hidden = self._conv("down_conv", skip, config.channels)
        for index in range(config.num_mid_stages):
            hidden = self._stage(f"mid.{index}", hidden, config.channels, biases[1 + index])
        hidden = self._stage("up", graph.concat([hidden, skip], 1), 2 * config.channels, biases[-1])
        hidden = self._conv_block("final", self._conv("up_conv", hidden, config.channels), config.channels)
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

    def _conv(self, name: str, x: Value, channels: int) -> Value:
        """``[B * T, channels]``: each frame beside the two before it, and one product."""
        graph = self.graph
        frames = self._by_row(x, channels)
        extended = graph.concat([self.tails[len(self.new_tails)], frames], 1)
        self.new_tails.append(graph.node("GatherND", extended, self.last))
        before = [graph.slice(extended, 1, tap, tap - TAIL) for tap in range(TAIL)]
        windows = graph.concat([*before, frames], 2)
        return self._linear(f"{name}.window", self._flat(windows, CONV_TAPS * channels))

    def _transformer(self, name: str, x: Value) -> Value:
        graph = self.graph
        mixed = self._attention(name, layers.layer_norm(graph, f"{name}.norm_attention", x))
        x = x + self._linear(f"{name}.out", mixed)
        normed = layers.layer_norm(graph, f"{name}.norm_feed_forward", x)
        widened = self._product(f"{name}.widen", normed)
        widened = graph.node("BiasGelu", widened, graph.weight(f"{name}.widen.bias"), domain=FUSED)
        return x + self._linear(f"{name}.narrow", widened)

    def _attention(self, name: str, x: Value) -> Value:
        graph, config, inner = self.graph, self.config, self.inner
        packed = self._by_row(self._product(f"{name}.qkv", x), 3 * inner)
        queries, keys, values = graph.node("Split", packed, outputs=3, axis=2, num_outputs=3)
        index = len(self.new) // 2
        rounded = [graph.cast(side, self.page_type) for side in (keys, values)]
        self.new += rounded
        keys, values = map(graph.wide, rounded)
        sizes = ("batch", config.num_heads, "past", config.head_dim)
        past = [
            graph.wide(graph.input(f"{side}.{index}", self.page_type, sizes)) for side in ("keys", "values")
        ]
        mixed, _, _ = graph.node(
            "MultiHeadAttention", queries, keys, values, None, None, self.bias, *past,
            outputs=3, domain=FUSED, num_heads=config.num_heads,
        )  # fmt: skip
        return self._flat(mixed, inner)

    def _mish(self, x: Value) -> Value:
        """``x * tanh(softplus(x))``, which is ``x * n / (n + 2)`` with ``n = e^x * (e^x + 2)``."""
        graph = self.graph
        power = graph.node("Exp", graph.node("Min", x, graph.constant(MOST_EXPONENT, FLOAT)))
        part = power * (power + 2.0)
        return x * (part / (part + 2.0))

    def _linear(self, name: str, x: Value) -> Value:
        bias = self.graph.weight(f"{name}.bias")
        return (
            self._integers.product(name, x) + bias if self._in_integers(name) else self._gemm(name, x, bias)
        )

    def _product(self, name: str, x: Value) -> Value:
        """Without the layer's bias."""
        return self._integers.product(name, x) if self._in_integers(name) else self._gemm(name, x)

    def _gemm(self, name: str, x: Value, *bias: Value) -> Value:
        weight = self.graph.weight(f"{name}.weight", self.graph.weights[f"{name}.weight"].T)
        result: Value = self.graph.node("Gemm", x, weight, *bias)
        return result

    def _in_integers(self, name: str) -> bool:
        return self.formats.weights == "int8" and bool(ROBUST.match(name))

    def _flat(self, x: Value, channels: int) -> Value:
        """``[B, T, C]`` to ``[B * T, C]``."""
        return self.graph.reshape(x, (-1, channels))

    def _by_row(self, x: Value, channels: int) -> Value:
        """``[B * T, C]`` to ``[B, T, C]``."""
        graph = self.graph
        return graph.reshape(x, graph.concat([self.rows, graph.integers(-1, channels)], 0))
