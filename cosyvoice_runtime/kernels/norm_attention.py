"""LayerNorm, queries, keys and values, and attention to all pages, of a call of one block.

In such a call no frame looks at new frames of other blocks, so a program has the keys that it needs: those of
its own block, which it computes and leaves in their page, and finished pages.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.places import Places
from cosyvoice_runtime.kernels.arithmetic import NOT_CHAINED, let_next_start, normalise, wait_for_previous
from cosyvoice_runtime.kernels.launch import launched, next_power_of_2
from cosyvoice_runtime.kernels.norm_qkv import EPSILON, norm_qkv_plain
from cosyvoice_runtime.kernels.paged_attention import paged_attention_plain, softmax_update, store_part
from cosyvoice_runtime.kernels.tiles import Tile


@launched
@triton.jit(do_not_specialize=["step", "rows", "frames", "before", "utterances", "table_width"])
def _norm_attention(
    x, weight, bias, pages, page, table, unused, lengths, mixed, weights,
    step, rows, frames, before, utterances, table_width, x_stride, page_stride, layer_start,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    EPS: tl.constexpr, SIZE: tl.constexpr, SPLITS: tl.constexpr, TOGETHER: tl.constexpr,
    STAGES: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    split = tl.program_id(1)
    INNER: tl.constexpr = HEADS * HEAD_DIM
    t = tl.arange(0, SIZE)
    d = tl.arange(0, HEAD_DIM)
    c = tl.arange(0, CHANNELS)
    m = row * frames + t
    present = t < frames
    own = split == SPLITS - 1
    column = head * HEAD_DIM + d
    at = weight + column[None, :] * CHANNELS + c[:, None]
    query_weight = tl.load(at)
    length = tl.load(lengths + row % utterances).to(tl.int32)
    first = tl.load(unused + row % utterances).to(tl.int32)
    share = tl.cdiv(before - first, SPLITS)
    first = first + split * share
    end = tl.minimum(before, first + share)
    table += row * table_width
    pages += layer_start + head * HEAD_DIM
    wait_for_previous(CHAINED)
    hidden = tl.load(x + m[:, None] * x_stride + c[None, :], mask=present[:, None], other=0.0)
    normed = normalise(hidden, CHANNELS, EPS).to(query_weight.dtype)
    q = tl.dot(normed, query_weight, input_precision="ieee") + tl.load(bias + column)[None, :]
    q = q.to(mixed.dtype.element_ty)
    peak = tl.full([SIZE], float("-inf"), tl.float32)
    total = tl.zeros([SIZE], tl.float32)
    sums = tl.zeros([SIZE, HEAD_DIM], tl.float32)
    if own:
        new_keys = tl.dot(normed, tl.load(at + INNER * CHANNELS), input_precision="ieee")
        new_keys = (new_keys + tl.load(bias + INNER + column)[None, :]).to(q.dtype)
        new_values = tl.dot(normed, tl.load(at + 2 * INNER * CHANNELS), input_precision="ieee")
        new_values = (new_values + tl.load(bias + 2 * INNER + column)[None, :]).to(q.dtype)
        stored = tl.load(page + m, mask=present, other=0) + step
        place = pages + (stored * page_stride + t * (2 * INNER))[:, None] + d[None, :]
        tl.store(place, new_keys, mask=present[:, None])
        tl.store(place + INNER, new_values, mask=present[:, None])
        peak, total, sums = softmax_update(q, tl.trans(new_keys), new_values, t < length, peak, total, sums)
    # Frames of several pages side by side, as many loads ahead as there are stages.
    j = tl.arange(0, TOGETHER * SIZE)
    nth, frame = j // SIZE, j % SIZE
    for n in tl.range(first, end, TOGETHER, num_stages=STAGES):
        there = n + nth < end
        seen = there & (frame < PAGE)
        ids = tl.load(table + n + nth, mask=there, other=0) + step
        start = ids.to(tl.int64) * page_stride + frame * (2 * INNER)
        keys = tl.load(pages + start[None, :] + d[:, None], mask=seen[None, :], other=0.0)
        values = tl.load(pages + INNER + start[:, None] + d[None, :], mask=seen[:, None], other=0.0)
        peak, total, sums = softmax_update(q, keys, values, seen, peak, total, sums)
    let_next_start(CHAINED)
    place = split * rows + m
    store_part(mixed, weights, place, column, head, present, peak, total, sums, HEADS, HEAD_DIM, SPLITS)


def norm_attention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    places: Places,
    attention: int,
    step: int,
    mixed: Tensor,
    weights: Tensor,
    tile: Tile,
    chained: int = NOT_CHAINED,
) -> None:
    """:func:`norm_qkv` and :func:`paged_attention` of a call with one new page a row; arguments as there."""
    rows, channels = x.shape
    pages = places.pages
    heads, head_dim = pages.shape[-2:]
    size = max(16, next_power_of_2(places.page_frames))
    _norm_attention[(places.rows * heads, len(mixed))](
        x, weight, bias, pages, places.page, places.table, places.unused, places.lengths, mixed, weights,
        step, rows, places.new_frames, places.before, len(places.lengths), places.table.shape[1],
        x.stride(0), pages.stride(0), attention * pages.stride(1),
        channels, heads, head_dim, places.page_frames, EPSILON, size, len(mixed), tile.repeat, tile.stages,
        chained,
        num_warps=tile.warps, maxnreg=tile.registers, launch_pdl=chained > 0,
    )  # fmt: skip


def norm_attention_plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    places: Places,
    attention: int,
    step: int,
    mixed: Tensor,
    weights: Tensor,
) -> None:
    """As :func:`norm_attention`."""
    queries = mixed.new_empty(mixed.shape[1:])
    norm_qkv_plain(x, weight, bias, queries, places, attention, step)
    paged_attention_plain(queries, places, attention, step, mixed, weights)
