"""The flow's encoder as a graph; mirrors :mod:`cosyvoice_runtime.flow.encoder`."""

from __future__ import annotations

import math

import onnx
import torch

from cosyvoice_runtime.checkpoint.config import FlowConfig
from cosyvoice_runtime.compiled.export import layers
from cosyvoice_runtime.compiled.export.carried import Carried
from cosyvoice_runtime.compiled.export.graph import BOOL, FLOAT, INT64, Graph, Value
from cosyvoice_runtime.flow.encoder import (
    LOOKAHEAD_SLOPE,
    UPSAMPLE_TAPS,
    EncoderLayer,
    FlowEncoder,
    ScaledEmbedding,
)

NAME = "flow_encoder"
LEFT_TAPS = 3
"""Of the look-ahead layer's second convolution."""


def encoder_graph(encoder: FlowEncoder, config: FlowConfig, dtype: str) -> onnx.ModelProto:
    """Hidden states of new tokens after tokens done before.

    Inputs: ``x`` ``[B, T + lookahead, width_in]`` embeddings and ``present`` bool ``[B, T + lookahead]``;
    ``visible_tokens`` bool ``[B, 1, T, S + T]`` and ``visible_frames`` bool, both sizes times the frames of a
    token; ``ends`` int64 ``[B]``, valid new tokens; keys, values and tails of both stacks, ``token_...`` and
    ``frame_...``, as in :class:`Carried`. Outputs: ``hidden`` ``[B, frames, width]``, and what
    :class:`Carried` hands on.
    """
    return _EncoderGraph(config, dtype).build(encoder)


class _EncoderGraph:
    def __init__(self, config: FlowConfig, dtype: str) -> None:
        self.config, self.encoder_config = config, config.conformer
        self.graph = Graph(NAME, dtype)

    def build(self, encoder: FlowEncoder) -> onnx.ModelProto:
        graph, rate = self.graph, self.config.frames_per_token
        x = graph.input("x", graph.type, ("batch", "padded", self.config.token_width))
        present = graph.input("present", BOOL, ("batch", "padded"))
        visible = graph.input("visible_tokens", BOOL, ("batch", 1, "new", "all"))
        visible_frames = graph.input("visible_frames", BOOL, ("batch", 1, "new_frames", "all_frames"))
        ends = graph.input("ends", INT64, ("batch",))
        tokens = Carried(graph, encoder.token_layout, "token_", ("batch", "past", "new"), ends)
        frame_ends = ends * rate
        frame_sizes = ("batch", "past_frames", "new_frames")
        frames = Carried(graph, encoder.frame_layout, "frame_", frame_sizes, frame_ends)

        hidden = self._embed("embed", encoder.embed, x)
        hidden = hidden * graph.unsqueeze(graph.cast(present, graph.type), 2)
        hidden = self._look_ahead(encoder, hidden, tokens)
        hidden = self._stack("layers", encoder.layers, hidden, visible, tokens)
        width = self.encoder_config.width
        hidden = graph.reshape(graph.concat([hidden] * rate, 2), (0, -1, width))
        window = layers.windows(graph, frames.extend(encoder.upsample.tail, hidden), UPSAMPLE_TAPS)
        hidden = layers.linear(graph, "upsample.window", encoder.upsample.window, window)
        hidden = self._embed("up_embed", encoder.up_embed, hidden)
        hidden = self._stack("up_layers", encoder.up_layers, hidden, visible_frames, frames)
        hidden = layers.layer_norm(graph, "norm", encoder.norm, hidden)
        graph.output("hidden", hidden, ("batch", "new_frames", width))
        tokens.outputs()
        frames.outputs()
        return graph.model()

    def _embed(self, name: str, module: ScaledEmbedding, x: Value) -> Value:
        graph = self.graph
        normed = layers.layer_norm(
            graph, f"{name}.norm", module.norm, layers.linear(graph, f"{name}.linear", module.linear, x)
        )
        return normed * module.scale

    def _look_ahead(self, encoder: FlowEncoder, x: Value, past: Carried) -> Value:
        graph, module = self.graph, encoder.look_ahead
        ahead = layers.linear(
            graph, "look_ahead.right", module.right, layers.windows(graph, x, module.tokens + 1)
        )
        ahead = graph.node("LeakyRelu", ahead, alpha=LOOKAHEAD_SLOPE)
        window = layers.windows(graph, past.extend(module.left.tail, ahead), LEFT_TAPS)
        left = layers.linear(graph, "look_ahead.left.window", module.left.window, window)
        return left + graph.slice(x, 1, 0, graph.size(ahead, 1))

    def _stack(self, name: str, stack: torch.nn.ModuleList, x: Value, visible: Value, past: Carried) -> Value:
        graph = self.graph
        hidden = layers.hidden_scores(graph, visible)
        table = self._relative_positions(graph.size(visible, 2), graph.size(visible, 3))
        for index, layer in enumerate(layers.members(stack, EncoderLayer)):
            x = self._layer(f"{name}.{index}", layer, x, hidden, table, past)
        return x

    def _layer(
        self, name: str, layer: EncoderLayer, x: Value, hidden: Value, table: Value, past: Carried
    ) -> Value:
        graph = self.graph
        normed = layers.layer_norm(graph, f"{name}.norm_attention", layer.norm_attention, x)
        mixed = self._attention(name, layer, normed, hidden, table, past)
        x = x + layers.linear(graph, f"{name}.out", layer.out, mixed)
        normed = layers.layer_norm(graph, f"{name}.norm_feed_forward", layer.norm_feed_forward, x)
        widened = layers.silu(graph, layers.linear(graph, f"{name}.widen", layer.widen, normed))
        return x + layers.linear(graph, f"{name}.narrow", layer.narrow, widened)

    def _attention(
        self, name: str, layer: EncoderLayer, x: Value, hidden: Value, table: Value, past: Carried
    ) -> Value:
        graph = self.graph
        packed = layers.linear(graph, f"{name}.qkv", layer.qkv, x)
        queries, new_keys, new_values = layers.split_heads(graph, packed, layer.heads, layer.head_dim)
        keys, values = past.keys_values(layer.attention, new_keys, new_values)
        by_content = self._biased(f"{name}.content_bias", layer.content_bias, queries)
        by_position = self._biased(f"{name}.position_bias", layer.position_bias, queries)
        content = by_content @ graph.transpose(keys, 0, 2, 3, 1)
        position = self._position_scores(name, layer, by_position, table, graph.size(hidden, 3))
        scores = graph.wide(content) + graph.wide(position) + hidden
        return layers.attend(graph, scores, values, self.encoder_config.width)

    def _biased(self, name: str, bias: torch.Tensor, queries: Value) -> Value:
        """Scaled queries of every head, ``[B, H, T, D]``."""
        scale = 1 / math.sqrt(self.encoder_config.head_dim)
        return layers.heads_first(self.graph, (queries + self.graph.weight(name, bias)) * scale)

    def _relative_positions(self, queries: Value, keys: Value) -> Value:
        """Sinusoid of the distances from ``keys - 1`` down to ``-queries``: ``[keys + queries, width]``.

        All sines, then all cosines; one distance more than there is, which :meth:`_position_scores` needs.
        """
        graph, width = self.graph, self.encoder_config.width
        frequency = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        distance = graph.wide(keys - graph.integers(1) - graph.arange(keys + queries))
        angle = graph.unsqueeze(distance, 1) * graph.constant(frequency.numpy(), FLOAT)
        return graph.narrow(graph.concat([graph.node("Sin", angle), graph.node("Cos", angle)], 1))

    def _position_scores(
        self, name: str, layer: EncoderLayer, queries: Value, table: Value, keys: Value
    ) -> Value:
        """Score by distance of each query ``[B, H, T, D]`` to each key: ``[B, H, T, S + T]``.

        Row i of the product starts one distance later than row i - 1. Flattened, cut by T - 1 at the start
        and folded again into rows one shorter, the keys line up.
        """
        graph = self.graph
        weight = layer.position.weight  # made for sines and cosines in turns
        ordered = torch.cat([weight[:, 0::2], weight[:, 1::2]], dim=1)
        distances = layers.affine(graph, f"{name}.position", ordered, None, table)
        distances = graph.reshape(distances, (0, layer.heads, layer.head_dim))
        scores = queries @ graph.transpose(distances, 1, 2, 0)
        rows, span = graph.size(scores, 2), graph.size(scores, 3)
        flat = graph.reshape(scores, (0, 0, -1))
        start, shorter = rows - graph.integers(1), span - graph.integers(1)
        flat = graph.slice(flat, 2, start, start + rows * shorter)
        shape = graph.concat([graph.integers(0, 0, -1), shorter], 0)
        return graph.slice(graph.reshape(flat, shape), 3, graph.integers(0), keys)
