"""Attention of the flow's encoder in a fused kernel; the rest of it stays plain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from cosyvoice_runtime.flow.kernels.relative_attention import RelativeWeights, join, relative_attention
from cosyvoice_runtime.flow.torch.encoder import EncoderLayer, FlowEncoder, relative_positions
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.graphed_calls import MOST_PAGES
from cosyvoice_runtime.flow.torch.places import PagePlaces
from cosyvoice_runtime.gpu.kernels.tiles import JOIN, RELATIVE, Tile, relative_splits


class FusedEncoder:
    """A :class:`~cosyvoice_runtime.flow.torch.encoder.PagedEncoder`; calls in all streams share its weights.

    Args:
        block: tokens of a page.
        pages: most of a row's table, new ones included.
    """

    def __init__(self, encoder: FlowEncoder, block: int, pages: int) -> None:
        self._tokens = _weights(encoder.layers, block, pages)
        self._frames = _weights(encoder.up_layers, block * encoder.frames_per_token, pages)

    @classmethod
    def of(cls, flow: Flow, pages: int = MOST_PAGES) -> FusedEncoder:
        """
        Raises:
            CheckpointError: the flow is not CosyVoice2's.
        """
        return cls(flow.network.conformer, flow.config.encoder.chunk_tokens, pages)

    def tokens(self, places: PagePlaces) -> FusedStack:
        """Of a call; ``frames`` alike."""
        return FusedStack(self._tokens, places)

    def frames(self, places: PagePlaces) -> FusedStack:
        return FusedStack(self._frames, places)


@dataclass(frozen=True, eq=False)
class FusedStack:
    """A :class:`~cosyvoice_runtime.flow.torch.layers.RelativeAttention`.

    Attributes:
        weights: of each layer.
        splits: parts that the keys are divided into; None: by the number of programs.
    """

    weights: Sequence[RelativeWeights]
    places: PagePlaces
    tile: Tile = RELATIVE
    splits: int | None = None

    def __call__(self, attention: int, queries: Tensor, new: Tensor) -> Tensor:
        rows, frames, heads, head_dim = queries.shape
        splits = self.splits or relative_splits(rows * heads * self.places.blocks)
        total, inner = rows * frames, heads * head_dim
        # Parts are joined before they are rounded.
        dtype = queries.dtype if splits == 1 else torch.float32
        mixed = queries.new_empty(splits, total, inner, dtype=dtype)
        shares = queries.new_empty(splits, total, heads, dtype=torch.float32)
        self.places.store(attention, new)
        relative_attention(queries, self.weights[attention], self.places, attention, mixed, shares, self.tile)
        if splits == 1:
            return mixed.view(rows, frames, inner)
        out = queries.new_empty(rows, frames, inner)
        join(mixed, shares, out.view(total, inner), JOIN)
        return out


def _weights(layers: Iterable[Module], page_frames: int, pages: int) -> list[RelativeWeights]:
    """Weights of a stack's layers, in the order of their numbers, for tables of so many pages."""
    found = {}
    for layer in layers:
        assert isinstance(layer, EncoderLayer)
        found[layer.attention] = relative_weights(layer, page_frames, pages)
    return [found[attention] for attention in range(len(found))]


def relative_weights(layer: EncoderLayer, page_frames: int, pages: int) -> RelativeWeights:
    """Weights of a layer, in float32 before they are rounded."""
    position = layer.position.weight
    ahead, back = page_frames, pages * page_frames
    sinusoid = relative_positions(ahead, back, position.shape[1], position.device).flip(0)
    return RelativeWeights(
        content_bias=layer.content_bias.detach().float(),
        position_bias=layer.position_bias.detach().float(),
        by_distance=F.linear(sinusoid, position.float()).to(position.dtype),
    )
