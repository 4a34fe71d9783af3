"""LayerNorm, queries, keys and values, and attention to all pages, of a call of one block.

In such a call no frame looks at new frames of other blocks, so a program has the keys that it needs: those of
its own block, which it computes and leaves in their page, and finished pages.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.kernels.norm_qkv import EPSILON
from cosyvoice_runtime.flow.kernels.page_codes import coded_rows, coding_of, scales_of
from cosyvoice_runtime.flow.kernels.paged_attention import load_keys, softmax_update, store_part
from cosyvoice_runtime.flow.torch.places import Places
from cosyvoice_runtime.gpu.kernels.arithmetic import NOT_CHAINED, let_next_start, normalise, wait_for_previous
from cosyvoice_runtime.gpu.kernels.launch import launched, next_power_of_2
from cosyvoice_runtime.gpu.kernels.tiles import Tile


@launched
@triton.jit(do_not_specialize=["step", "rows", "frames", "before", "utterances", "table_width"])
def _norm_attention(
    x, weight, bias, pages, scales, page, table, unused, lengths, mixed, weights,
    step, rows, frames, before, utterances, table_width, x_stride, page_stride, layer_start,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    EPS: tl.constexpr, SIZE: tl.constexpr, SPLITS: tl.constexpr, KEYS: tl.constexpr,
    STAGES: tl.constexpr, CODING: tl.constexpr, CHAINED: tl.constexpr,
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
    scales += layer_start // HEAD_DIM + head * PAGE
    scale_stride = page_stride // HEAD_DIM
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
        new_keys += tl.load(bias + INNER + column)[None, :]
        new_values = tl.dot(normed, tl.load(at + 2 * INNER * CHANNELS), input_precision="ieee")
        new_values += tl.load(bias + 2 * INNER + column)[None, :]
        stored = tl.load(page + m, mask=present, other=0) + step
        if CODING:
            new_keys, of_keys = coded_rows(new_keys)
            new_values, of_values = coded_rows(new_values)
            place = scales + stored * scale_stride + t
            tl.store(place, of_keys, mask=present)
            tl.store(place + HEADS * PAGE, of_values, mask=present)
        else:
            of_keys, of_values = t, t
        place = pages + (stored * page_stride + t * (2 * INNER))[:, None] + d[None, :]
        new_keys, new_values = new_keys.to(q.dtype), new_values.to(q.dtype)
        tl.store(place, new_keys.to(pages.dtype.element_ty), mask=present[:, None])
        tl.store(place + INNER, new_values.to(pages.dtype.element_ty), mask=present[:, None])
        WIDE: tl.constexpr = 1 if CODING else 0  # codes that are wide already
        peak, total, sums = softmax_update(
            q, tl.trans(new_keys), new_values, t < length, peak, total, sums, of_keys, of_values, WIDE
        )
    j = tl.arange(0, KEYS)
    count = tl.maximum(end - first, 0) * PAGE
    for start in tl.range(0, count, KEYS, num_stages=STAGES):
        key = start + j
        there = key < count
        keys, values, of_keys, of_values = load_keys(
            pages, scales, table, step, first + key // PAGE, key % PAGE, there, page_stride,
            HEADS, HEAD_DIM, PAGE, CODING,
        )  # fmt: skip
        peak, total, sums = softmax_update(
            q, keys, values, there, peak, total, sums, of_keys, of_values, CODING
        )
    let_next_start(CHAINED)
    part = split * rows + m
    store_part(
        mixed, weights, part, column, head, present, peak, total, sums, HEADS, HEAD_DIM, SPLITS, CODING
    )


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
        x, weight, bias, pages, scales_of(places), places.page, places.table, places.unused, places.lengths,
        mixed, weights, step, rows, places.new_frames, places.before, len(places.lengths),
        places.table.shape[1], x.stride(0), pages.stride(0), attention * pages.stride(1),
        channels, heads, head_dim, places.page_frames, EPSILON, size, len(mixed), tile.columns, tile.stages,
        coding_of(places), chained,
        num_warps=tile.warps, maxnreg=tile.registers, launch_pdl=chained > 0,
    )  # fmt: skip
