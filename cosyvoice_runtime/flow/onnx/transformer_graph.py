"""CosyVoice3's estimator as a graph for ONNX Runtime's kernels of a CPU, and what its times give.

The network is that of :mod:`cosyvoice_runtime.flow.export.dit`; attention is one operator for both
rows, which writes keys and values by the layer.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_flow import DiTConfig
from cosyvoice_runtime.checkpoint.schema_flow import POSITION_KERNEL, TIME_SINUSOID
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.export.dit import (
    BLOCK_MODULATIONS,
    FINAL_MODULATIONS,
    POSITION_CONVS,
    STARTS,
    HeadTurn,
    Transformer,
)
from cosyvoice_runtime.flow.onnx import times_graph as flow_times_graph
from cosyvoice_runtime.flow.onnx.estimator_graph import BlockMemory
from cosyvoice_runtime.flow.onnx.page_codes import EIGHT_BITS
from cosyvoice_runtime.flow.page_store import GUIDANCE_ROWS
from cosyvoice_runtime.onnx import layers
from cosyvoice_runtime.onnx.graph import FAR, FLOAT, INT64, Graph, Value
from cosyvoice_runtime.onnx.runtime_graph import RuntimeGraph
from cosyvoice_runtime.onnx.wave_graphs import FLOW_ESTIMATOR, FLOW_TIMES, EstimatorFormats

TAIL = POSITION_KERNEL - 1


def transformer_graph(
    weights: Mapping[str, Array], config: DiTConfig, mel_bins: int, formats: EstimatorFormats
) -> onnx.ModelProto:
    """Inputs and outputs are those of
    :func:`~cosyvoice_runtime.flow.onnx.estimator_graph.estimator_graph`, but that tails hold 30 frames,
    that ``time_biases`` are ``[6 * blocks + 2, C]``, and that ``starts`` int64 ``[R]`` counts the frames of
    the utterance before the new ones.

    Args:
        weights: of the estimator, by their names in it.

    Raises:
        InvalidInput: weights in another format than float32, or pages in 8 bits.
    """
    if formats.weights != "float32":
        raise InvalidInput("token2wav.weight_format", formats.weights, "float32 with CosyVoice3")
    if formats.pages == EIGHT_BITS:
        raise InvalidInput("token2wav.page_format", formats.pages, "float32 or float16 with CosyVoice3")
    graph = RuntimeGraph(FLOW_ESTIMATOR, "float32", weights)
    x = graph.input("x", FLOAT, (GUIDANCE_ROWS, "new", mel_bins))
    conditions = graph.input("conditions", FLOAT, (GUIDANCE_ROWS, "new", 3 * mel_bins))
    modulations = BLOCK_MODULATIONS * config.depth + FINAL_MODULATIONS
    time_biases = graph.input("time_biases", FLOAT, (modulations, config.width))
    starts = graph.input(STARTS, INT64, (GUIDANCE_ROWS,))
    past = _LayerPast(graph, config, formats.pages)
    mu, voice, prompt = graph.node("Split", conditions, outputs=3, axis=2, num_outputs=3)
    network = Transformer(
        graph, config, past, past.memory.bias, HeadTurn.of(graph, starts, x, config.head_dim)
    )
    velocity = network.velocity(graph.concat([x, prompt, mu, voice], 2), time_biases)
    graph.output("velocity", velocity, (GUIDANCE_ROWS, "new", mel_bins))
    past.ports()
    return past.memory.model()


class _LayerPast:
    """Tails in one input, keys and values in one for each layer; see :class:`TransformerPast
    <cosyvoice_runtime.flow.export.dit.TransformerPast>`.

    Args:
        page_format: of keys and values.
    """

    def __init__(self, graph: RuntimeGraph, config: DiTConfig, page_format: str) -> None:
        self.graph, self.config = graph, config
        self.memory = BlockMemory(graph, page_format, (config.num_heads, config.head_dim))
        self.tails_shape = (GUIDANCE_ROWS, TAIL, POSITION_CONVS * config.width)
        tails = graph.input("tails", FLOAT, self.tails_shape)
        self.tails = graph.node("Split", tails, outputs=POSITION_CONVS, axis=2, num_outputs=POSITION_CONVS)
        self.new_tails: list[Value] = []

    def extend(self, x: Value, frames: int, channels: int) -> Value:  # noqa: ARG002
        extended = self.graph.concat([self.tails[len(self.new_tails)], x], 1)
        self.new_tails.append(self.graph.slice(extended, 1, -TAIL, FAR))
        return extended

    def attend_heads(self, queries: Value, new_keys: Value, new_values: Value, hidden: Value) -> Value:  # noqa: ARG002
        """``hidden`` is what the memory adds anyway."""
        graph, inner = self.graph, self.config.inner_width
        heads = (graph.transpose(each, 1, 0, 2, 3) for each in (queries, new_keys, new_values))
        mixed = self.memory.attend([graph.reshape(each, (1, -1, GUIDANCE_ROWS * inner)) for each in heads])
        return graph.transpose(graph.reshape(mixed, (-1, GUIDANCE_ROWS, inner)), 1, 0, 2)

    def ports(self) -> None:
        """Declare what the frames after these will need."""
        self.graph.output("new_tails", self.graph.concat(self.new_tails, 2), self.tails_shape)


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
