"""The flow's encoder as a graph; mirrors :mod:`cosyvoice_runtime.flow.torch.encoder`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.export.carried import Carried, CarriedTails
from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.onnx import layers
from cosyvoice_runtime.onnx.graph import BOOL, FLOAT, INT64, Graph, Value

NAME = "flow_encoder"
LEFT_TAPS = 3
"""Taps of the look-ahead layer's second convolution."""
UPSAMPLE_TAPS = 5
LOOKAHEAD_SLOPE = 0.01
LAYER_NORM_EPS = 1e-12


def encoder_graph(weights: Mapping[str, Array], config: FlowConfig, dtype: str) -> onnx.ModelProto:
    """Hidden states of new tokens after tokens done before; the weights are those of the encoder.

    Inputs: ``x`` ``[B, T + lookahead, width_in]`` embeddings and ``present`` bool ``[B, T + lookahead]``;
    ``visible_tokens`` bool ``[B, 1, T, S + T]`` and ``visible_frames`` bool, both sizes times the frames of a
    token; ``ends`` int64 ``[B]``, valid new tokens; keys, values and tails of both stacks, ``token_...`` and
    ``frame_...``, as in :class:`Carried`. Outputs: ``hidden`` ``[B, frames, width]``, and what
    :class:`Carried` hands on.
    """
    graph = Graph(NAME, dtype, weights)
    x = graph.input("x", graph.type, ("batch", "padded", config.token_width))
    network = Conformer(graph, config)
    graph.output("hidden", network.hidden(x), ("batch", "new_frames", config.conformer.width))
    network.ports()
    return graph.model()


def look_ahead(graph: Graph, name: str, x: Value, lookahead: int, channels: int, past: CarriedTails) -> Value:
    """``x [B, T + lookahead, C]`` to ``[B, T, C]``: the next tokens mixed into each.

    Args:
        name: of the layer; ``channels``: between its two convolutions.
    """
    ahead = layers.linear(graph, f"{name}.right", layers.windows(graph, x, lookahead + 1))
    ahead = graph.node("LeakyRelu", ahead, alpha=LOOKAHEAD_SLOPE)
    window = layers.windows(graph, past.extend(ahead, LEFT_TAPS - 1, channels), LEFT_TAPS)
    left = layers.linear(graph, f"{name}.left.window", window)
    return left + graph.slice(x, 1, 0, graph.size(ahead, 1))


class Conformer:
    """Adds the network to a graph.

    Args:
        prefix: of its weights' names in the graph's.
    """

    def __init__(self, graph: Graph, config: FlowConfig, prefix: str = "") -> None:
        self.graph, self.prefix = graph, prefix
        self.config, self.encoder = config, config.conformer

    def hidden(self, x: Value) -> Value:
        """``[B, frames, width]`` of embedded tokens ``[B, T + lookahead, width_in]``."""
        graph, config, encoder = self.graph, self.config, self.encoder
        rate, width = config.frames_per_token, encoder.width
        present = graph.input("present", BOOL, ("batch", "padded"))
        visible = graph.input("visible_tokens", BOOL, ("batch", 1, "new", "all"))
        visible_frames = graph.input("visible_frames", BOOL, ("batch", 1, "new_frames", "all_frames"))
        ends = graph.input("ends", INT64, ("batch",))
        tokens, frames = (
            Carried(graph, PastLayout(encoder.num_heads, encoder.head_dim), prefix, sizes, lengths)
            for prefix, sizes, lengths in (
                ("token_", ("batch", "past", "new"), ends),
                ("frame_", ("batch", "past_frames", "new_frames"), ends * rate),
            )
        )
        self.tokens, self.frames = tokens, frames
        hidden = self._embed("embed", x)
        hidden = hidden * graph.unsqueeze(graph.cast(present, graph.type), 2)
        name, lookahead = f"{self.prefix}look_ahead", config.lookahead_tokens
        hidden = look_ahead(graph, name, hidden, lookahead, width, tokens)
        hidden = self._stack("layers", encoder.num_layers, hidden, visible, tokens)
        hidden = graph.reshape(graph.concat([hidden] * rate, 2), (0, -1, width))
        window = layers.windows(graph, frames.extend(hidden, UPSAMPLE_TAPS - 1, width), UPSAMPLE_TAPS)
        hidden = self._embed("up_embed", self._linear("upsample.window", window))
        hidden = self._stack("up_layers", encoder.num_up_layers, hidden, visible_frames, frames)
        return self._norm("norm", hidden)

    def ports(self) -> None:
        """Declare what both stacks carry."""
        self.tokens.ports()
        self.frames.ports()

    def _linear(self, name: str, x: Value) -> Value:
        return layers.linear(self.graph, f"{self.prefix}{name}", x)

    def _norm(self, name: str, x: Value, eps: float = layers.NORM_EPS) -> Value:
        return layers.layer_norm(self.graph, f"{self.prefix}{name}", x, eps)

    def _embed(self, name: str, x: Value) -> Value:
        normed = self._norm(f"{name}.norm", self._linear(f"{name}.linear", x))
        return normed * math.sqrt(self.encoder.width)

    def _stack(self, name: str, count: int, x: Value, visible: Value, past: Carried) -> Value:
        graph = self.graph
        hidden = layers.hidden_scores(graph, visible)
        table = self._relative_positions(graph.size(visible, 2), graph.size(visible, 3))
        for index in range(count):
            x = self._layer(f"{name}.{index}", x, hidden, table, past)
        return x

    def _layer(self, name: str, x: Value, hidden: Value, table: Value, past: Carried) -> Value:
        graph = self.graph
        normed = self._norm(f"{name}.norm_attention", x, LAYER_NORM_EPS)
        mixed = self._attention(name, normed, hidden, table, past)
        x = x + self._linear(f"{name}.out", mixed)
        normed = self._norm(f"{name}.norm_feed_forward", x, LAYER_NORM_EPS)
        widened = layers.silu(graph, self._linear(f"{name}.widen", normed))
        return x + self._linear(f"{name}.narrow", widened)

    def _attention(self, name: str, x: Value, hidden: Value, table: Value, past: Carried) -> Value:
        graph, encoder = self.graph, self.encoder
        packed = self._linear(f"{name}.qkv", x)
        queries, new_keys, new_values = layers.split_heads(graph, packed, encoder.num_heads, encoder.head_dim)
        keys, values = past.keys_values(new_keys, new_values)
        by_content = self._biased(f"{name}.content_bias", queries)
        by_position = self._biased(f"{name}.position_bias", queries)
        content = by_content @ graph.transpose(keys, 0, 2, 3, 1)
        position = self._position_scores(name, by_position, table, graph.size(hidden, 3))
        scores = graph.wide(content) + graph.wide(position) + hidden
        return layers.attend(graph, scores, values, encoder.width)

    def _biased(self, name: str, queries: Value) -> Value:
        """Scaled queries of every head, ``[B, H, T, D]``."""
        scale = 1 / math.sqrt(self.encoder.head_dim)
        return layers.heads_first(self.graph, (queries + self.graph.weight(f"{self.prefix}{name}")) * scale)

    def _relative_positions(self, queries: Value, keys: Value) -> Value:
        """Sinusoid of the distances from ``keys - 1`` down to ``-queries``: ``[keys + queries, width]``.

        All sines, then all cosines; one distance more than there is, which :meth:`_position_scores` needs.
        """
        graph, width = self.graph, self.encoder.width
        exponent = np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(10000.0) / width)
        distance = graph.wide(keys - graph.integers(1) - graph.arange(keys + queries))
        angle = graph.unsqueeze(distance, 1) * graph.constant(np.exp(exponent), FLOAT)
        return graph.narrow(graph.concat([graph.node("Sin", angle), graph.node("Cos", angle)], 1))

    def _position_scores(self, name: str, queries: Value, table: Value, keys: Value) -> Value:
        """Score by distance of each query ``[B, H, T, D]`` to each key: ``[B, H, T, S + T]``.

        Row i of the product starts one distance later than row i - 1. Flattened, cut by T - 1 at the start
        and folded again into rows one shorter, the keys line up.
        """
        graph, encoder = self.graph, self.encoder
        weight = graph.weights[f"{self.prefix}{name}.position.weight"]  # made for sines and cosines in turns
        ordered = np.concatenate([weight[:, 0::2], weight[:, 1::2]], axis=1)
        distances = layers.affine(graph, f"{self.prefix}{name}.position", ordered, None, table)
        distances = graph.reshape(distances, (0, encoder.num_heads, encoder.head_dim))
        scores = queries @ graph.transpose(distances, 1, 2, 0)
        rows, span = graph.size(scores, 2), graph.size(scores, 3)
        flat = graph.reshape(scores, (0, 0, -1))
        start, shorter = rows - graph.integers(1), span - graph.integers(1)
        flat = graph.slice(flat, 2, start, start + rows * shorter)
        shape = graph.concat([graph.integers(0, 0, -1), shorter], 0)
        return graph.slice(graph.reshape(flat, shape), 3, graph.integers(0), keys)
