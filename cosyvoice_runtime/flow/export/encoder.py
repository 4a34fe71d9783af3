"""The flow's encoder as a graph, and the state that a graph carries from call to call.

The encoder mirrors :mod:`cosyvoice_runtime.flow.torch.encoder`. The state is keys and values of all attention
layers in one tensor each, and the last input frames of all convolutions in another. The start of an utterance
is zeros behind a mask. Layers are numbered in the order in which they ask, which is that of the networks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.onnx import layers
from cosyvoice_runtime.onnx.graph import BOOL, FLOAT, INT64, Graph, Value

NAME = "flow_encoder"
LEFT_TAPS = 3
"""Taps of the look-ahead layer's second convolution."""
UPSAMPLE_TAPS = 5
LOOKAHEAD_SLOPE = 0.01
LAYER_NORM_EPS = 1e-12


class CarriedTails:
    """Input ``tails`` ``[B, N]`` and output ``new_tails`` alike: the last input frames of all convolutions.

    Args:
        prefix: start of the names of these.
        batch: name of the free size B.
        ends: int64 ``[B]``, valid new frames of each row.
    """

    def __init__(self, graph: Graph, layout: PastLayout, prefix: str, batch: str, ends: Value) -> None:
        self.graph, self.layout, self.prefix, self.batch = graph, layout, prefix, batch
        self._tails = Value(graph, f"{prefix}tails", graph.type)
        self._ends = ends
        self._new_tails: list[Value] = []

    def extend(self, x: Value, frames: int, channels: int) -> Value:
        """Put the ``frames`` frames before ``x [B, T, C]`` in front of it."""
        graph, tail = self.graph, self.layout.add_tail(frames, channels)
        before = graph.slice(self._tails, 1, tail.offset, tail.offset + tail.size)
        extended = graph.concat([graph.reshape(before, (0, frames, channels)), x], 1)
        places = graph.unsqueeze(self._ends, 1) + graph.constant(range(frames), INT64)
        last = graph.node("GatherND", extended, graph.unsqueeze(places, 2), batch_dims=1)
        self._new_tails.append(graph.reshape(last, (0, tail.size)))
        return extended

    def ports(self) -> None:
        """Declare what comes in, now that it is known, and what the frames after these will need."""
        graph, shape = self.graph, (self.batch, self.layout.tail_size)
        graph.input(f"{self.prefix}tails", graph.type, shape)
        graph.output(f"new_{self.prefix}tails", graph.concat(self._new_tails, 1), shape)


class Carried(CarriedTails):
    """Besides the tails, inputs ``keys`` and ``values`` ``[A, B, S, H, D]`` and outputs ``new_...`` alike.

    Args:
        batch, past, new: names of the free sizes B, S and T.
    """

    def __init__(
        self, graph: Graph, layout: PastLayout, prefix: str, sizes: tuple[str, str, str], ends: Value
    ) -> None:
        batch, self._past, self._new = sizes
        super().__init__(graph, layout, prefix, batch, ends)
        self.keys = Value(graph, f"{prefix}keys", graph.type)
        self.values = Value(graph, f"{prefix}values", graph.type)
        self._new_keys: list[Value] = []
        self._new_values: list[Value] = []

    def keys_values(self, keys: Value, values: Value) -> tuple[Value, Value]:
        """Keys and values ``[B, S + T, H, D]`` of the next layer, given those of the input."""
        graph, attention = self.graph, self.layout.add_attention()
        self._new_keys.append(keys)
        self._new_values.append(values)
        before = (graph.node("Gather", side, graph.constant(attention, INT64), axis=0)
                  for side in (self.keys, self.values))  # fmt: skip
        all_keys, all_values = (
            graph.concat([old, new], 1) for old, new in zip(before, (keys, values), strict=True)
        )
        return all_keys, all_values

    def attend(self, packed: Value, hidden: Value) -> Value:
        """Scaled dot-product attention of the next layer: ``[B, T, H * D]``.

        Args:
            packed: queries, keys and values of the input, ``[B, T, 3 * H * D]``.
            hidden: float32, added to the scores ``[B, H, T, S + T]``.
        """
        layout = self.layout
        queries, keys, values = layers.split_heads(self.graph, packed, layout.heads, layout.head_dim)
        return self.attend_heads(queries, keys, values, hidden)

    def attend_heads(self, queries: Value, new_keys: Value, new_values: Value, hidden: Value) -> Value:
        """Attend as :meth:`attend` does, to separate queries, keys and values ``[B, T, H, D]``."""
        graph, heads, head_dim = self.graph, self.layout.heads, self.layout.head_dim
        keys, values = self.keys_values(new_keys, new_values)
        queries = layers.heads_first(graph, queries * (1 / math.sqrt(head_dim)))
        scores = graph.wide(queries @ graph.transpose(keys, 0, 2, 3, 1)) + hidden
        return layers.attend(graph, scores, values, heads * head_dim)

    def ports(self) -> None:
        super().ports()
        graph, layout = self.graph, self.layout
        for name, new in (("keys", self._new_keys), ("values", self._new_values)):
            sizes = (layout.heads, layout.head_dim)
            past, added = ((layout.attentions, self.batch, size, *sizes) for size in (self._past, self._new))
            graph.input(f"{self.prefix}{name}", graph.type, past)
            stacked = graph.concat([graph.unsqueeze(layer, 0) for layer in new], 0)
            graph.output(f"new_{self.prefix}{name}", stacked, added)


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
        weight = graph.weights[f"{self.prefix}{name}.position.weight"]  # for alternating sines and cosines
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
