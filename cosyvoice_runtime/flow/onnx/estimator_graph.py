"""The flow's estimators as graphs for ONNX Runtime's kernels of a CPU.

They compute what :mod:`cosyvoice_runtime.flow.export.estimator` computes, in fewer and fused operators, for
small products take no longer than what stands between them: frames of both rows in one matrix, so that a
product adds its bias; attention in one. (The runtime's one operator for sum and norm takes longer than the
two.)

Rows are adjacent within a frame: heads of both are heads of one row, which is all that the runtime's
attention takes where new keys are written behind those of earlier blocks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_flow import DiTConfig, EstimatorConfig, FlowConfig
from cosyvoice_runtime.checkpoint.schema_flow import POSITION_KERNEL, TIME_SINUSOID
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.export.estimator import (
    BLOCK_MODULATIONS,
    FINAL_MODULATIONS,
    POSITION_CONVS,
    STARTS,
    HeadRotation,
    Transformer,
    UNetGraph,
)
from cosyvoice_runtime.flow.onnx.encoder_graph import sinusoid
from cosyvoice_runtime.flow.onnx.pages import EIGHT_BITS, LARGEST, PAGE_FORMAT
from cosyvoice_runtime.onnx import layers
from cosyvoice_runtime.onnx.graph import FAR, FLOAT, HALF, INT64, ONNX_TYPES, Graph, Value
from cosyvoice_runtime.onnx.runtime_graph import INT32, IntegerProducts, RuntimeGraph
from cosyvoice_runtime.onnx.session import FLOW_ESTIMATOR, FLOW_TIMES, EstimatorFormats

ROBUST = re.compile(r"mid\.|(down|up)\.blocks\.")
"""Layers that lose little in 8 bits: all but the convolutions next to the mel and the noise."""
CONV_TAPS = 3
TAIL = CONV_TAPS - 1
MOST_EXPONENT = 30.0
"""Above it mish is its argument, to float32."""
ATTENTION = re.compile(r"(.*)\.norm_attention\.weight")
IN_WHOLE_NUMBERS = 1.15
"""Products in 8 bits give more than the weights say: each operand is off by half a step, a 254th of its row's
largest, which of 256 channels is at most 16 / 254 of a product, twice."""


class PageScales(NamedTuple):
    """Weights whose keys and values fit into pages in 8 bits.

    Attributes:
        weights: of the estimator, with keys and values of at most ``LARGEST``.
        keys: what attention's scores are to be multiplied with for it, by the layer.
    """

    weights: Mapping[str, Array]
    keys: Mapping[str, float]

    @classmethod
    def of(cls, weights: Mapping[str, Array]) -> PageScales:
        """Keys and values of each layer divided by powers of two, so that nothing else is rounded otherwise;
        the layer after attention multiplies the values again.

        Args:
            weights: of the estimator, by their names in it; those of attention read a layer norm.
        """
        scaled, scales = dict(weights), dict[str, float]()
        for name in (match[1] for match in map(ATTENTION.fullmatch, weights) if match):
            norm = [np.asarray(weights[f"{name}.norm_attention.{part}"]) for part in ("weight", "bias")]
            queries, keys, values = np.split(np.asarray(weights[f"{name}.qkv.weight"], np.float32), 3)
            of_keys, of_values = (scale(largest(part, *norm)) for part in (keys, values))
            scaled[f"{name}.qkv.weight"] = np.concatenate([queries, keys / of_keys, values / of_values])
            scaled[f"{name}.out.weight"] = np.asarray(weights[f"{name}.out.weight"]) * of_values
            scales[name] = float(of_keys)
        return cls(scaled, scales)


def scale(most: float) -> np.float32:
    """Power of two to divide numbers by that are no larger than ``most``."""
    return np.float32(2.0 ** math.ceil(math.log2(IN_WHOLE_NUMBERS * most / LARGEST)) if most else 1)


def largest(matrix: Array, weight: Array, bias: Array) -> float:
    """The largest magnitude that a product with what a layer norm gives can have.

    Before its own weights, a layer norm of C channels gives a vector of mean 0 and no longer than sqrt(C).

    Args:
        matrix: ``[out, C]``.
        weight, bias: of the norm, ``[C]``.
    """
    varied = np.asarray(matrix, np.float64) * weight
    varied -= varied.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(varied, axis=1) * math.sqrt(len(weight))
    return float((lengths + np.abs(np.asarray(matrix, np.float64) @ bias)).max())


def tail_channels(config: EstimatorConfig) -> list[int]:
    """Input channels of the convolutions, in their order."""
    channels = config.channels
    mid = [channels, channels] * config.num_mid_stages
    return [config.in_channels, channels, channels, *mid, 2 * channels, channels, channels, channels]


def estimator_graph(
    weights: Mapping[str, Array], flow: FlowConfig, formats: EstimatorFormats
) -> onnx.ModelProto:
    """Velocity of new frames after frames done before.

    Inputs, of one utterance in all guidance rows R: ``x`` ``[R, T, mel]``; ``conditions``
    ``[R, T, in - mel]``, all else that the network reads; ``time_biases`` ``[stages, C]``; ``tails``
    ``[R, 2, N]``, the two frames before the new ones; and those of :class:`BlockMemory`.
    Outputs: ``velocity`` ``[R, T, mel]``, ``new_tails`` ``[R, 2, N]``, and those of :class:`BlockMemory`.

    Args:
        weights: of the estimator, by their names in it.
        formats: that of weights is of the layers that ``ROBUST`` names.
    """
    return _EstimatorGraph(weights, flow, formats).build()


class BlockMemory:
    """Keys and values of all frames so far, in memory that the caller keeps.

    Inputs: ``last`` int32 ``[1]``, the last new frame; ``total`` int32 ``[1]``, all frames up to it; ``bias``
    ``[1, 1, T, S + T]``, added to attention's scores; ``keys.0``, ``values.0`` and so on
    ``[1, R * H, room, D]``, of which the first S frames are there. Outputs ``keys_after.0`` and so on are to
    be bound to the same memory: new ones are written behind them. All but the first two are in the format of
    pages, and so are queries: a call sees its own keys and values as later ones will. Those of pages
    in 8 bits are float16, as which they are read.

    Args:
        page_format: that format.
        flow: has the rows R, their H heads, and D.
    """

    def __init__(self, graph: RuntimeGraph, page_format: str, flow: FlowConfig) -> None:
        self.graph, self.page_format = graph, page_format
        self.heads, self.head_dim = flow.guidance_rows * flow.blockwise.num_heads, flow.blockwise.head_dim
        self.page_type = HALF if page_format == EIGHT_BITS else ONNX_TYPES[page_format]
        self.place = [graph.input(name, INT32, (1,)) for name in ("last", "total")]
        self.bias = graph.input("bias", self.page_type, (1, 1, "new", "all"))
        self.layers = 0

    def attend(self, heads: Sequence[Value], of_keys: float = 1.0) -> Value:
        """Attention of the next layer: ``[1, T, R * H * D]`` of queries, keys and values divided by
        ``of_keys``."""
        graph, layer = self.graph, self.layers
        self.layers += 1
        mixed = graph.attention(
            [graph.cast(each, self.page_type) for each in heads],
            [(f"{side}.{layer}", f"{side}_after.{layer}") for side in ("keys", "values")],
            (1, self.heads, "room", self.head_dim),
            self.place,
            self.bias,
            num_heads=self.heads,
            kv_num_heads=self.heads,
            causal=0,
            scale=of_keys / math.sqrt(self.head_dim),
        )
        return graph.wide(mixed)

    def model(self) -> onnx.ModelProto:
        """The finished graph, which tells the format of pages."""
        model = self.graph.model()
        helper.set_model_props(model, {PAGE_FORMAT: self.page_format})
        return model


class _EstimatorGraph(UNetGraph):
    """The estimator over frames and rows in one matrix, ``[T * R, C]``."""

    def __init__(self, weights: Mapping[str, Array], flow: FlowConfig, formats: EstimatorFormats) -> None:
        config = flow.unet
        self.flow, self.rows, self.formats = flow, flow.guidance_rows, formats
        in_8_bits = formats.pages == EIGHT_BITS
        self._scales = PageScales.of(weights) if in_8_bits else PageScales(weights, {})
        self.runtime = RuntimeGraph(FLOW_ESTIMATOR, "float32", self._scales.weights)
        super().__init__(self.runtime, config)
        self._integers = IntegerProducts(self.runtime)
        self.inner = config.num_heads * config.head_dim
        self.new_tails: list[Value] = []

    def build(self) -> onnx.ModelProto:
        graph, config, bins, rows = self.graph, self.config, self.flow.mel_bins, self.rows
        x = graph.input("x", FLOAT, (rows, "new", bins))
        conditions = graph.input("conditions", FLOAT, (rows, "new", config.in_channels - bins))
        time_biases = graph.input("time_biases", FLOAT, (config.num_stages, config.channels))
        self.memory = BlockMemory(self.runtime, self.formats.pages, self.flow)
        channels = tail_channels(config)
        tails_shape = (rows, TAIL, sum(channels))
        tails = graph.transpose(graph.input("tails", FLOAT, tails_shape), 1, 0, 2)
        self.tails = graph.node("Split", tails, graph.integers(*channels), outputs=len(channels), axis=2)
        packed = graph.transpose(graph.concat([x, conditions], 2), 1, 0, 2)
        stages = config.num_stages
        biases = graph.node("Split", time_biases, outputs=stages, axis=0, num_outputs=stages)
        velocity = self.network(self._flat(packed, config.in_channels), biases)
        velocity = graph.transpose(self._by_frame(velocity, bins), 1, 0, 2)
        graph.output("velocity", velocity, (rows, "new", bins))
        graph.output("new_tails", graph.transpose(graph.concat(self.new_tails, 2), 1, 0, 2), tails_shape)
        return self.memory.model()

    def _conv(self, name: str, x: Value, channels: int) -> Value:
        """``[T * R, channels]``: each frame with the two before it, and one product."""
        graph = self.graph
        frames = self._by_frame(x, channels)
        extended = graph.concat([self.tails[len(self.new_tails)], frames], 0)
        self.new_tails.append(graph.slice(extended, 0, -TAIL, FAR))
        before = [graph.slice(extended, 0, tap, tap - TAIL) for tap in range(TAIL)]
        windows = graph.concat([*before, frames], 2)
        return self._linear(f"{name}.window", self._flat(windows, CONV_TAPS * channels))

    def _widened(self, name: str, x: Value) -> Value:
        bias = self.graph.weight(f"{name}.bias")
        widened: Value = self.runtime.runtime("BiasGelu", self._product(name, x), bias)
        return widened

    def _attention(self, name: str, x: Value) -> Value:
        graph, inner = self.graph, self.inner
        packed = self._by_frame(self._product(f"{name}.qkv", x), 3 * inner)
        parts = graph.node("Split", packed, outputs=3, axis=2, num_outputs=3)
        side_by_side = [graph.reshape(part, (1, -1, self.rows * inner)) for part in parts]
        return self._flat(self.memory.attend(side_by_side, self._scales.keys.get(name, 1.0)), inner)

    def _mish(self, x: Value) -> Value:
        """``x * tanh(softplus(x))``, which is ``x * n / (n + 2)`` with ``n = e^x * (e^x + 2)``."""
        graph = self.graph
        power = graph.node("Exp", graph.node("Min", x, graph.constant(MOST_EXPONENT, FLOAT)))
        part = power * (power + 2.0)
        return x * (part / (part + 2.0))

    def _linear(self, name: str, x: Value) -> Value:
        bias = self.graph.weight(f"{name}.bias")
        return self._in_steps(name, x) + bias if self._in_integers(name) else self._gemm(name, x, bias)

    def _product(self, name: str, x: Value) -> Value:
        """Without the layer's bias."""
        return self._in_steps(name, x) if self._in_integers(name) else self._gemm(name, x)

    def _in_steps(self, name: str, x: Value) -> Value:
        return self._integers.product(name, self.graph.weights[f"{name}.weight"], x)

    def _gemm(self, name: str, x: Value, *bias: Value) -> Value:
        weight = self.graph.weight(f"{name}.weight", self.graph.weights[f"{name}.weight"].T)
        result: Value = self.graph.node("Gemm", x, weight, *bias)
        return result

    def _in_integers(self, name: str) -> bool:
        return self.formats.weights == "int8" and bool(ROBUST.match(name))

    def _flat(self, x: Value, channels: int) -> Value:
        """``[T, R, C]`` to ``[T * R, C]``."""
        return self.graph.reshape(x, (-1, channels))

    def _by_frame(self, x: Value, channels: int) -> Value:
        """``[T * R, C]`` to ``[T, R, C]``."""
        return self.graph.reshape(x, (-1, self.rows, channels))


POSITION_TAIL = POSITION_KERNEL - 1


def transformer_graph(
    weights: Mapping[str, Array], flow: FlowConfig, formats: EstimatorFormats
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
    graph, config = RuntimeGraph(FLOW_ESTIMATOR, "float32", weights), flow.transformer
    rows, mel_bins = flow.guidance_rows, flow.mel_bins
    x = graph.input("x", FLOAT, (rows, "new", mel_bins))
    conditions = graph.input("conditions", FLOAT, (rows, "new", 3 * mel_bins))
    modulations = BLOCK_MODULATIONS * config.depth + FINAL_MODULATIONS
    time_biases = graph.input("time_biases", FLOAT, (modulations, config.width))
    starts = graph.input(STARTS, INT64, (rows,))
    past = _LayerPast(graph, flow, formats.pages)
    mu, voice, prompt = graph.node("Split", conditions, outputs=3, axis=2, num_outputs=3)
    network = Transformer(
        graph, config, past, past.memory.bias, HeadRotation.of(graph, starts, x, config.head_dim)
    )
    velocity = network.velocity(graph.concat([x, prompt, mu, voice], 2), time_biases)
    graph.output("velocity", velocity, (rows, "new", mel_bins))
    past.ports()
    return past.memory.model()


class _LayerPast:
    """Tails in one input, keys and values in one for each layer; see :class:`TransformerPast
    <cosyvoice_runtime.flow.export.estimator.TransformerPast>`.

    Args:
        page_format: of keys and values.
    """

    def __init__(self, graph: RuntimeGraph, flow: FlowConfig, page_format: str) -> None:
        config, self.rows = flow.transformer, flow.guidance_rows
        self.graph, self.config = graph, config
        self.memory = BlockMemory(graph, page_format, flow)
        self.tails_shape = (self.rows, POSITION_TAIL, POSITION_CONVS * config.width)
        tails = graph.input("tails", FLOAT, self.tails_shape)
        self.tails = graph.node("Split", tails, outputs=POSITION_CONVS, axis=2, num_outputs=POSITION_CONVS)
        self.new_tails: list[Value] = []

    def extend(self, x: Value, frames: int, channels: int) -> Value:  # noqa: ARG002
        extended = self.graph.concat([self.tails[len(self.new_tails)], x], 1)
        self.new_tails.append(self.graph.slice(extended, 1, -POSITION_TAIL, FAR))
        return extended

    def attend_heads(self, queries: Value, new_keys: Value, new_values: Value, hidden: Value) -> Value:  # noqa: ARG002
        """``hidden`` is what the memory adds anyway."""
        graph, inner = self.graph, self.config.inner_width
        heads = (graph.transpose(each, 1, 0, 2, 3) for each in (queries, new_keys, new_values))
        mixed = self.memory.attend([graph.reshape(each, (1, -1, self.rows * inner)) for each in heads])
        return graph.transpose(graph.reshape(mixed, (-1, self.rows, inner)), 1, 0, 2)

    def ports(self) -> None:
        """Declare what the frames after these will need."""
        self.graph.output("new_tails", self.graph.concat(self.new_tails, 2), self.tails_shape)


def transformer_times_graph(weights: Mapping[str, Array], config: DiTConfig) -> onnx.ModelProto:
    """``times`` ``[n]`` in [0, 1] to ``biases`` ``[n, 6 * blocks + 2, C]``, by the estimator's weights."""
    graph = Graph(FLOW_TIMES, "float32", weights)
    times = sinusoid(graph, TIME_SINUSOID)
    hidden = layers.silu(graph, layers.linear(graph, "time.first", times))
    active = layers.silu(graph, layers.linear(graph, "time.second", hidden))
    names = [*(f"time.blocks.{index}" for index in range(config.depth)), "time.final"]
    joined = graph.concat([layers.linear(graph, name, active) for name in names], 1)
    modulations = BLOCK_MODULATIONS * config.depth + FINAL_MODULATIONS
    biases = graph.reshape(joined, (0, modulations, config.width))
    graph.output("biases", biases, ("n", modulations, config.width))
    return graph.model()
