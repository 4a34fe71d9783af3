"""CosyVoice3's estimator as a graph for ONNX Runtime's kernels of a CPU, and what its times give.

The network is that of :mod:`cosyvoice_runtime.compiled.export.dit`; attention is one operator, which takes
keys and values of the past by the layer.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_cosyvoice3 import DiTConfig
from cosyvoice_runtime.checkpoint.schema_cosyvoice3 import POSITION_KERNEL, TIME_SINUSOID
from cosyvoice_runtime.compiled.export import layers
from cosyvoice_runtime.compiled.export.dit import (
    BLOCK_MODULATIONS,
    FINAL_MODULATIONS,
    POSITION_CONVS,
    STARTS,
    HeadTurn,
    Transformer,
)
from cosyvoice_runtime.compiled.export.graph import FLOAT, INT64, ONNX_TYPES, Graph, Value
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.onnx_cpu import flow_times_graph
from cosyvoice_runtime.onnx_cpu.integer_product_graph import FUSED
from cosyvoice_runtime.onnx_cpu.wave_graphs import FLOW_ESTIMATOR, FLOW_TIMES, EstimatorFormats

TAIL = POSITION_KERNEL - 1


def transformer_graph(
    weights: Mapping[str, Array], config: DiTConfig, mel_bins: int, formats: EstimatorFormats
) -> onnx.ModelProto:
    """Inputs and outputs are those of
    :func:`~cosyvoice_runtime.onnx_cpu.flow_estimator_graph.estimator_graph`, but that tails hold 30 frames,
    that ``time_biases`` are ``[6 * blocks + 2, C]``, and that ``starts`` int64 ``[B]`` counts the frames of
    each utterance before the new ones.

    Args:
        weights: of the estimator, by their names in it.

    Raises:
        InvalidInput: weights in another format than float32.
    """
    if formats.weights != "float32":
        raise InvalidInput("token2wav.weight_format", formats.weights, "float32 with CosyVoice3")
    graph = Graph(FLOW_ESTIMATOR, "float32", weights)
    x = graph.input("x", FLOAT, ("batch", "new", mel_bins))
    conditions = graph.input("conditions", FLOAT, ("batch", "new", 3 * mel_bins))
    modulations = BLOCK_MODULATIONS * config.depth + FINAL_MODULATIONS
    time_biases = graph.input("time_biases", FLOAT, (modulations, config.width))
    bias = graph.input("bias", FLOAT, ("batch", 1, "new", "all"))
    starts = graph.input(STARTS, INT64, ("batch",))
    past = _LayerPast(graph, config, ONNX_TYPES[formats.pages])
    mu, voice, prompt = graph.node("Split", conditions, outputs=3, axis=2, num_outputs=3)
    network = Transformer(graph, config, past, bias, HeadTurn.of(graph, starts, x, config.head_dim))
    velocity = network.velocity(graph.concat([x, prompt, mu, voice], 2), time_biases)
    graph.output("velocity", velocity, ("batch", "new", mel_bins))
    past.ports()
    return graph.model()


class _LayerPast:
    """Tails in one input, keys and values in one for each layer; see :class:`TransformerPast
    <cosyvoice_runtime.compiled.export.dit.TransformerPast>`.

    Args:
        page_type: of keys and values that later calls read.
    """

    def __init__(self, graph: Graph, config: DiTConfig, page_type: int) -> None:
        self.graph, self.config, self.page_type = graph, config, page_type
        self.last = graph.input("last", INT64, ("batch", TAIL, 2))
        sizes = POSITION_CONVS * config.width
        tails = graph.input("tails", FLOAT, ("batch", TAIL, sizes))
        self.tails = graph.node("Split", tails, outputs=POSITION_CONVS, axis=2, num_outputs=POSITION_CONVS)
        self.new_tails: list[Value] = []
        self.new: list[Value] = []

    def extend(self, x: Value, frames: int, channels: int) -> Value:  # noqa: ARG002
        extended = self.graph.concat([self.tails[len(self.new_tails)], x], 1)
        self.new_tails.append(self.graph.node("GatherND", extended, self.last))
        return extended

    def attend_heads(self, queries: Value, new_keys: Value, new_values: Value, hidden: Value) -> Value:
        graph, config = self.graph, self.config
        inputs = [graph.reshape(each, (0, 0, config.inner_width)) for each in (queries, new_keys, new_values)]
        index = len(self.new) // 2
        rounded = [graph.cast(side, self.page_type) for side in inputs[1:]]
        self.new += rounded
        inputs[1:] = map(graph.wide, rounded)
        sizes = ("batch", config.num_heads, "past", config.head_dim)
        past = [
            graph.wide(graph.input(f"{side}.{index}", self.page_type, sizes)) for side in ("keys", "values")
        ]
        mixed, _, _ = graph.node(
            "MultiHeadAttention", *inputs, None, None, hidden, *past,
            outputs=3, domain=FUSED, num_heads=config.num_heads,
        )  # fmt: skip
        attended: Value = mixed
        return attended

    def ports(self) -> None:
        """Declare what the frames after these will need."""
        graph, config = self.graph, self.config
        sizes = ("batch", TAIL, POSITION_CONVS * config.width)
        graph.output("new_tails", graph.concat(self.new_tails, 2), sizes)
        new = graph.concat([graph.unsqueeze(value, 0) for value in self.new], 0)
        graph.output("new", new, (len(self.new), "batch", "new", config.inner_width))


def times_graph(weights: Mapping[str, Array], config: DiTConfig) -> onnx.ModelProto:
    """``times`` ``[n]`` in [0, 1] to ``biases`` ``[n, 6 * blocks + 2, C]``.

    Args:
        weights: of the estimator, by their names in it.
    """
    graph = Graph(FLOW_TIMES, "float32", weights)
    sinusoid = flow_times_graph.sinusoid(graph, TIME_SINUSOID)
    hidden = layers.silu(graph, layers.linear(graph, "time.first", sinusoid))
    active = layers.silu(graph, layers.linear(graph, "time.second", hidden))
    names = [*(f"time.blocks.{index}" for index in range(config.depth)), "time.final"]
    joined = graph.concat([layers.linear(graph, name, active) for name in names], 1)
    modulations = BLOCK_MODULATIONS * config.depth + FINAL_MODULATIONS
    biases = graph.reshape(joined, (0, modulations, config.width))
    graph.output("biases", biases, ("n", modulations, config.width))
    return graph.model()
