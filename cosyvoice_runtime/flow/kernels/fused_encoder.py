"""Attention of the flow's encoder, with Transformer-XL relative positions, over a page table.

A query and a key score by their contents and by their distance. Inside a tile of queries of one block and
keys of one page the distances are neighbours: one product gives every query's score for all of them, and its
row i shifted by i places lines the keys up. All else of the encoder is computed by torch's modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import Module

from cosyvoice_runtime.flow.kernels.layers import joined_parts
from cosyvoice_runtime.flow.kernels.paged_attention import (
    load_page,
    pages_of_part,
    softmax_add,
    store_part,
)
from cosyvoice_runtime.flow.torch.call_pages import PagePlaces
from cosyvoice_runtime.flow.torch.encoder import EncoderLayer, PagedEncoder, relative_positions
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.graphed_calls import MOST_PAGES
from cosyvoice_runtime.gpu.kernels.arithmetic import LOG2_E
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched, next_power_of_2
from cosyvoice_runtime.gpu.kernels.tiles import JOIN, RELATIVE, Tile, relative_splits


@dataclass(frozen=True, eq=False)
class RelativeWeights:
    """Addends of a layer's queries, and their factors for their distance to a key.

    Attributes:
        content_bias, position_bias: float32 ``[H, D]``.
        by_distance: ``[N, inner]`` in the network's type; row n is of the distance, query minus key, of
            ``n - (page_frames - 1)`` frames: a query looks ahead no further than its own page.
    """

    content_bias: Tensor
    position_bias: Tensor
    by_distance: Tensor

    def reach(self, page_frames: int) -> int:
        """Most pages of a table whose distances are all there."""
        return (len(self.by_distance) + 1) // page_frames - 1


@launched
@triton.jit(do_not_specialize=["frames", "rows", "before", "table_width"])
def _relative_attention(
    queries, content_bias, position_bias, by_distance, pages, table, unused, lengths, mixed, shares,
    frames, rows, before, table_width, row_stride, query_stride, page_stride, layer_start,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr, SCALE: tl.constexpr,
    SIZE: tl.constexpr, SPLITS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    block = tl.program_id(1)
    split = tl.program_id(2)
    INNER: tl.constexpr = HEADS * HEAD_DIM
    i = tl.arange(0, SIZE)
    j = tl.arange(0, SIZE)
    column = head * HEAD_DIM + tl.arange(0, HEAD_DIM)
    t = block * PAGE + i
    asks = (i < PAGE) & (t < frames)
    length, first, end = pages_of_part(lengths, unused, row, before, block, split, PAGE, SPLITS)
    own = before + block
    table += row * table_width
    pages += layer_start + head * HEAD_DIM
    at = queries + row.to(tl.int64) * row_stride + t[:, None] * query_stride + column[None, :]
    q = tl.load(at, mask=asks[:, None], other=0.0).to(tl.float32)
    by_content = (q + tl.load(content_bias + column)[None, :]) * SCALE
    by_content = by_content.to(by_distance.dtype.element_ty)
    by_position = (q + tl.load(position_bias + column)[None, :]) * SCALE
    by_position = by_position.to(by_distance.dtype.element_ty)
    # All distances of a tile, from a first query's to a last key to a last query's to a first key.
    w = tl.arange(0, 2 * SIZE)
    apart = w - (SIZE - 1)
    occurs = (apart > -PAGE) & (apart < PAGE)
    shift = i[:, None] - j[None, :] + (SIZE - 1)
    peak = tl.full([SIZE], float("-inf"), tl.float32)
    total = tl.zeros([SIZE], tl.float32)
    sums = tl.zeros([SIZE, HEAD_DIM], tl.float32)
    for n in tl.range(first, end, num_stages=STAGES):
        here = tl.load(table + n)
        seen = j < tl.minimum(PAGE, length - (n - before) * PAGE)
        keys, values = load_page(pages + here * page_stride, seen, HEADS, HEAD_DIM, SIZE)
        distance = (own - n) * PAGE + apart + (PAGE - 1)
        window = by_distance + distance[None, :] * INNER + column[:, None]
        window = tl.load(window, mask=occurs[None, :], other=0.0)
        scores = tl.gather(tl.dot(by_position, window, input_precision="ieee"), shift, axis=1)
        scores += tl.dot(by_content, keys, input_precision="ieee")
        scores = tl.where(seen[None, :], scores, float("-inf"))
        peak, total, sums = softmax_add(scores, values, peak, total, sums)
    place = split * rows + row * frames + t
    store_part(mixed, shares, place, column, head, asks, peak, total, sums, HEADS, HEAD_DIM, SPLITS)


def relative_attention(
    queries: Tensor,
    weights: RelativeWeights,
    places: PagePlaces,
    attention: int,
    mixed: Tensor,
    shares: Tensor,
    tile: Tile,
) -> None:
    """A frame sees every page before its own block, and of its own block the frames that exist.

    Args:
        queries: ``[R, T, H, D]``, frames of all rows equally far apart; heads are adjacent.
        places: pages in which the new frames' keys and values lie already.
        attention: the layer's number.
        mixed: ``[splits, R * T, inner]``, written: values mixed over each part of the keys.
        shares: float32 ``[splits, R * T, H]``, written unless there is one split: log2 of each part's share.
        tile: warps and stages; a program takes a block of queries and a page of keys at a time.

    Raises:
        ValueError: the pages go back further than the weights' distances.
    """
    pages, splits = places.pages, len(mixed)
    rows, frames, heads, head_dim = queries.shape
    if places.table.shape[1] > weights.reach(places.page_frames):
        raise ValueError(f"distances of {places.table.shape[1]} pages are wanted, more than there are")
    size = max(16, next_power_of_2(places.page_frames))
    _relative_attention[(rows * heads, places.blocks, splits)](
        queries, weights.content_bias, weights.position_bias, weights.by_distance, pages, places.table,
        places.unused, places.lengths, mixed, shares, frames, rows * frames, places.before,
        places.table.shape[1], queries.stride(0), queries.stride(1), pages.stride(0),
        attention * pages.stride(1),
        heads, head_dim, places.page_frames, head_dim**-0.5 * LOG2_E, size, splits, tile.stages,
        num_warps=tile.warps,
    )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["rows"])
def _join(
    mixed, shares, out, rows,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1)
    INNER: tl.constexpr = HEADS * HEAD_DIM
    column = head * HEAD_DIM + tl.arange(0, HEAD_DIM)
    inside = m < rows
    joined = joined_parts(mixed, shares, m, head, column, inside, rows, INNER, HEADS, SPLITS)
    tl.store(
        out + m[:, None] * INNER + column[None, :], joined.to(out.dtype.element_ty), mask=inside[:, None]
    )


def join(mixed: Tensor, shares: Tensor, out: Tensor, tile: Tile) -> None:
    """The parts of attention, each by its share.

    Args:
        mixed, shares: as :func:`relative_attention` wrote them.
        out: ``[R * T, inner]``, written.
        tile: rows that a program takes, of one head.
    """
    splits, rows, inner = mixed.shape
    heads = shares.shape[2]
    _join[(cdiv(rows, tile.rows), heads)](
        mixed, shares, out, rows, heads, inner // heads, splits, tile.rows, num_warps=tile.warps
    )


def fused_encoder(flow: Flow, pages: int = MOST_PAGES) -> PagedEncoder:
    """Fused attention of a flow's encoder; calls in all streams share its weights.

    Args:
        pages: the most pages of a row's table, new ones included.

    Raises:
        CheckpointError: the flow is not CosyVoice2's.
    """
    encoder, block = flow.network.conformer, flow.config.encoder.chunk_tokens
    tokens = _weights(encoder.layers, block, pages)
    frames = _weights(encoder.up_layers, block * encoder.frames_per_token, pages)
    return PagedEncoder(partial(FusedStack, tokens), partial(FusedStack, frames))


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
