"""Layers that the graphs share. Time is axis 1, ``[B, T, C]``, unless said otherwise.

Normalisations, softmax and activations are computed in float32 whatever the graph's type: their sums and
differences lose digits in half precision, and next to the matrix products they cost nothing.
"""

from __future__ import annotations

import math

import numpy as np

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.onnx.graph import FLOAT, Graph, Value

HIDDEN_SCORE = -30000.0
"""Added to the score of a key that a query must not see: exp of it is 0, yet a row in which nothing is
visible (padding) gets finite weights and no NaN, which would spread through the keys and values."""


NORM_EPS = 1e-5
"""Epsilon of a LayerNorm, unless said otherwise."""


def linear(graph: Graph, name: str, x: Value) -> Value:
    """The layer of this name: ``x @ weight.T + bias``, weight ``[out, in]``."""
    return affine(graph, name, graph.weights[f"{name}.weight"], graph.weights.get(f"{name}.bias"), x)


def affine(graph: Graph, name: str, weight: Array, bias: Array | None, x: Value) -> Value:
    """``x @ weight.T + bias``, weight ``[out, in]``."""
    result = x @ graph.weight(f"{name}.weight", weight.T)
    return result if bias is None else result + graph.weight(f"{name}.bias", bias)


def layer_norm(graph: Graph, name: str, x: Value, eps: float = NORM_EPS) -> Value:
    scale = graph.weight(f"{name}.weight", onnx_type=FLOAT)
    shift = graph.weight(f"{name}.bias", onnx_type=FLOAT)
    wide = graph.node("LayerNormalization", graph.wide(x), scale, shift, axis=-1, epsilon=eps)
    return graph.narrow(wide)


def plain_norm(graph: Graph, x: Value, channels: int, eps: float) -> Value:
    """LayerNorm without weights of its own, in float32."""
    scale, shift = (graph.constant(np.full(channels, value), FLOAT) for value in (1.0, 0.0))
    normed: Value = graph.node("LayerNormalization", graph.wide(x), scale, shift, axis=-1, epsilon=eps)
    return normed


def mish(graph: Graph, x: Value) -> Value:
    wide = graph.wide(x)
    return graph.narrow(wide * graph.node("Tanh", graph.node("Softplus", wide)))


def silu(graph: Graph, x: Value) -> Value:
    wide = graph.wide(x)
    return graph.narrow(wide * graph.node("Sigmoid", wide))


def gelu(graph: Graph, x: Value) -> Value:
    wide = graph.wide(x)
    return graph.narrow(wide * 0.5 * (graph.node("Erf", wide * math.sqrt(0.5)) + 1.0))


def tanh_gelu(graph: Graph, x: Value) -> Value:
    """GELU with the error function approximated by a hyperbolic tangent."""
    wide = graph.wide(x)
    inner = (wide + wide * wide * wide * 0.044715) * math.sqrt(2 / math.pi)
    return graph.narrow(wide * 0.5 * (graph.node("Tanh", inner) + 1.0))


def windows(graph: Graph, x: Value, taps: int) -> Value:
    """``[B, taps - 1 + T, C]`` to ``[B, T, taps * C]``: each frame with the ones after it."""
    frames = graph.size(x, 1) - graph.integers(taps - 1)
    parts = [graph.slice(x, 1, tap, frames + graph.integers(tap)) for tap in range(taps)]
    return graph.concat(parts, 2)


def hidden_scores(graph: Graph, visible: Value) -> Value:
    """Addends of attention scores: float32 in the shape of the bool mask ``visible``."""
    shown, hidden = graph.constant(0.0, FLOAT), graph.constant(HIDDEN_SCORE, FLOAT)
    return graph.node("Where", visible, shown, hidden, onnx_type=FLOAT)


def heads_first(graph: Graph, x: Value) -> Value:
    """``[B, T, H, D]`` to ``[B, H, T, D]``."""
    return graph.transpose(x, 0, 2, 1, 3)


def split_heads(graph: Graph, packed: Value, heads: int, head_dim: int) -> list[Value]:
    """Queries, keys and values ``[B, T, H, D]`` out of one projection ``[B, T, 3 * H * D]``."""
    parts = graph.node("Split", packed, outputs=3, axis=-1, num_outputs=3)
    return [graph.reshape(part, (0, 0, heads, head_dim)) for part in parts]


def attend(graph: Graph, scores: Value, values: Value, width: int) -> Value:
    """Weighted sum of values ``[B, S, H, D]`` by float32 scores ``[B, H, T, S]``: ``[B, T, H * D]``."""
    weights = graph.narrow(graph.node("Softmax", scores, axis=-1))
    mixed = heads_first(graph, weights @ heads_first(graph, values))
    return graph.reshape(mixed, (0, 0, width))
