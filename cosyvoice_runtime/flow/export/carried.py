"""Incremental state of a graph: cached keys, values and tails, in and out.

Keys and values of all attention layers in one tensor each, the last input frames of all convolutions in
another. The start of an utterance is zeros behind a mask. Layers are numbered in the order in which they ask,
which is that of the networks (:mod:`cosyvoice_runtime.flow`).
"""

from __future__ import annotations

import math

from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.onnx import layers
from cosyvoice_runtime.onnx.graph import INT64, Graph, Value


class CarriedTails:
    """Input ``tails`` ``[B, N]`` and output ``new_tails`` alike: the last input frames of all convolutions.

    Args:
        prefix: of the names of these.
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
        """As :meth:`attend`, of queries, keys and values ``[B, T, H, D]``."""
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
