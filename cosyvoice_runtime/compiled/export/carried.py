"""Incremental state of a graph: cached keys, values and tails, in and out.

The counterpart of :class:`~cosyvoice_runtime.flow.layers.Past`: keys and values of all attention layers in
one tensor each, the last input frames of all convolutions in another. The start of an utterance is zeros
behind a mask.
"""

from __future__ import annotations

from cosyvoice_runtime.compiled.export.graph import INT64, Graph, Value
from cosyvoice_runtime.flow.layers import PastLayout, Tail


class Carried:
    """Inputs ``keys`` and ``values`` ``[A, B, S, H, D]`` and ``tails`` ``[B, N]``; outputs ``new_...`` alike.

    Args:
        prefix: of the names of these inputs and outputs.
        batch, past, new: names of the free sizes B, S and T.
        ends: int64 ``[B]``, valid new frames of each row.
    """

    def __init__(
        self, graph: Graph, layout: PastLayout, prefix: str, sizes: tuple[str, str, str], ends: Value
    ) -> None:
        self._graph, self._layout, self._prefix = graph, layout, prefix
        self._batch, past, self._new = sizes
        shape = (layout.attentions, self._batch, past, layout.heads, layout.head_dim)
        self.keys = graph.input(f"{prefix}keys", graph.type, shape)
        self.values = graph.input(f"{prefix}values", graph.type, shape)
        self._tails = graph.input(f"{prefix}tails", graph.type, (self._batch, layout.tail_size))
        self._ends = ends
        self._new_keys: list[Value] = []
        self._new_values: list[Value] = []
        self._new_tails: list[Value] = []

    def extend(self, tail: Tail, x: Value) -> Value:
        """Put the ``tail.frames`` frames before ``x [B, T, C]`` in front of it."""
        graph = self._graph
        before = graph.slice(self._tails, 1, tail.offset, tail.offset + tail.size)
        extended = graph.concat([graph.reshape(before, (0, tail.frames, tail.channels)), x], 1)
        places = graph.unsqueeze(self._ends, 1) + graph.constant(range(tail.frames), INT64)
        last = graph.node("GatherND", extended, graph.unsqueeze(places, 2), batch_dims=1)
        self._new_tails.append(graph.reshape(last, (0, tail.size)))
        return extended

    def keys_values(self, attention: int, keys: Value, values: Value) -> tuple[Value, Value]:
        """Keys and values ``[B, S + T, H, D]`` of a layer, given those of the input ``[B, T, H, D]``."""
        graph = self._graph
        self._new_keys.append(keys)
        self._new_values.append(values)
        before = (graph.node("Gather", side, graph.constant(attention, INT64), axis=0)
                  for side in (self.keys, self.values))  # fmt: skip
        all_keys, all_values = (
            graph.concat([old, new], 1) for old, new in zip(before, (keys, values), strict=True)
        )
        return all_keys, all_values

    def outputs(self) -> None:
        """Declare what the frames after these will need."""
        graph, layout = self._graph, self._layout
        shape = (layout.attentions, self._batch, self._new, layout.heads, layout.head_dim)
        for name, layers in (("keys", self._new_keys), ("values", self._new_values)):
            stacked = graph.concat([graph.unsqueeze(layer, 0) for layer in layers], 0)
            graph.output(f"new_{self._prefix}{name}", stacked, shape)
        graph.output(
            f"new_{self._prefix}tails", graph.concat(self._new_tails, 1), (self._batch, layout.tail_size)
        )
