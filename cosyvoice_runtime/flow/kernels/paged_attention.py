"""Attention of new frames to everything before them and to their own block, over a page table."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.kernels.layers import NORM_EPSILON
from cosyvoice_runtime.flow.kernels.page_codes import (
    VALUE_UNIT,
    coded_rows,
    coding_of,
    load_scales,
    scales_of,
    widened,
)
from cosyvoice_runtime.flow.torch.call_pages import Places
from cosyvoice_runtime.gpu.kernels.arithmetic import NOT_CHAINED, let_next_start, normalise, wait_for_previous
from cosyvoice_runtime.gpu.kernels.launch import launched, next_power_of_2
from cosyvoice_runtime.gpu.kernels.tiles import Tile


@triton.jit
def softmax_update(
    q, keys, values, seen, peak, total, sums, key_scales=None, value_scales=None, CODING: tl.constexpr = 0
):
    """Add keys ``[D, N]`` and values ``[N, D]`` to a running softmax in powers of two."""
    scores = tl.dot(q, widened(keys, q, CODING), input_precision="ieee")
    if CODING:
        scores *= key_scales[None, :]
    scores = tl.where(seen[None, :], scores, float("-inf"))
    return softmax_add(scores, widened(values, q, CODING), peak, total, sums, value_scales, CODING)


@triton.jit
def softmax_add(scores, values, peak, total, sums, value_scales=None, CODING: tl.constexpr = 0):
    """Add scores ``[M, N]``, -inf where not seen, and values. Sums of coded values have their own unit."""
    higher = tl.maximum(peak, tl.max(scores, axis=1))
    shrink = tl.exp2(peak - higher)
    p = tl.exp2(scores - higher[:, None])
    total = total * shrink + tl.sum(p, axis=1)
    if CODING:
        p *= (value_scales * VALUE_UNIT)[None, :]
    sums = tl.dot(p.to(values.dtype), values, sums * shrink[:, None], input_precision="ieee")
    return higher, total, sums


@triton.jit
def load_page(base, seen, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, KEYS: tl.constexpr):
    """Keys ``[D, KEYS]`` and values ``[KEYS, D]`` of one head as they are kept; zeros where not seen."""
    j = tl.arange(0, KEYS)
    d = tl.arange(0, HEAD_DIM)
    FRAME: tl.constexpr = 2 * HEADS * HEAD_DIM
    keys = tl.load(base + j[None, :] * FRAME + d[:, None], mask=seen[None, :], other=0)
    values = tl.load(base + HEADS * HEAD_DIM + j[:, None] * FRAME + d[None, :], mask=seen[:, None], other=0)
    return keys, values


@triton.jit
def load_keys(
    pages, scales, table, step, n, frame, there, page_stride,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr, CODING: tl.constexpr,
):  # fmt: skip
    """Keys ``[D, N]`` and values ``[N, D]`` of a head as they are kept, and scales; zeros where not there.

    Args:
        n, frame: each key's page of the table, and its frame there.
    """
    d = tl.arange(0, HEAD_DIM)
    ids = (tl.load(table + n, mask=there, other=0) + step).to(tl.int64)
    start = ids * page_stride + frame * (2 * HEADS * HEAD_DIM)
    keys = tl.load(pages + start[None, :] + d[:, None], mask=there[None, :], other=0)
    values = tl.load(pages + HEADS * HEAD_DIM + start[:, None] + d[None, :], mask=there[:, None], other=0)
    place = ids * (page_stride // HEAD_DIM) + frame
    of_keys = load_scales(scales, place, there, CODING)
    of_values = load_scales(scales, place + HEADS * PAGE, there, CODING)
    return keys, values, of_keys, of_values


@triton.jit
def pages_of_part(lengths, unused, utterance, before, block, split, PAGE: tl.constexpr, SPLITS: tl.constexpr):
    """New frames of an utterance, and the first page and the one after the last that a part of the keys has.

    The keys that a new block sees: every page that the utterance has, up to the block's own.
    """
    length = tl.load(lengths + utterance).to(tl.int32)
    first = tl.load(unused + utterance).to(tl.int32)
    end = before + tl.minimum(block, (length - 1) // PAGE) + 1
    share = tl.cdiv(end - first, SPLITS)
    first = first + split * share
    return length, first, tl.minimum(end, first + share)


@triton.jit
def store_part(
    mixed, weights, place, column, head, asks, peak, total, sums,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr, CODING: tl.constexpr = 0,
):  # fmt: skip
    """Values mixed over a part of the keys, and with several parts log2 of its share."""
    if CODING:
        sums *= 1.0 / VALUE_UNIT
    mean = sums / tl.where(total > 0, total, 1.0)[:, None]  # a part without keys is zeros, and weighs nothing
    at = mixed + place[:, None] * (HEADS * HEAD_DIM) + column[None, :]
    tl.store(at, mean.to(mixed.dtype.element_ty), mask=asks[:, None])
    if SPLITS > 1:
        tl.store(weights + place * HEADS + head, peak + tl.log2(total), mask=asks)


@launched
@triton.jit(do_not_specialize=["step", "rows", "frames", "before", "utterances", "table_width"])
def _paged_attention(
    queries, pages, scales, table, unused, lengths, mixed, weights,
    step, rows, frames, before, utterances, table_width, page_stride, layer_start,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr, CODING: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    block = tl.program_id(1)
    split = tl.program_id(2)
    INNER: tl.constexpr = HEADS * HEAD_DIM
    i = tl.arange(0, ROWS)
    j = tl.arange(0, KEYS)
    d = tl.arange(0, HEAD_DIM)
    t = block * PAGE + i
    m = row * frames + t
    asks = (i < PAGE) & (t < frames)
    length, first, end = pages_of_part(lengths, unused, row % utterances, before, block, split, PAGE, SPLITS)
    table += row * table_width
    pages += layer_start + head * HEAD_DIM
    scales += layer_start // HEAD_DIM + head * PAGE + j
    scale_stride = page_stride // HEAD_DIM
    # Pages of earlier calls are there already; those of this call only after the wait.
    here = tl.load(table + first, mask=first < end, other=0) + step
    seen = j < tl.minimum(PAGE, length - (first - before) * PAGE)
    ready = seen & (first < tl.minimum(end, before))
    keys, values = load_page(pages + here * page_stride, ready, HEADS, HEAD_DIM, KEYS)
    of_keys = load_scales(scales, here * scale_stride, ready, CODING)
    of_values = load_scales(scales, here * scale_stride + HEADS * PAGE, ready, CODING)
    following = tl.load(table + first + 1, mask=first + 1 < end, other=0) + step
    wait_for_previous(CHAINED)
    q = tl.load(queries + m[:, None] * INNER + head * HEAD_DIM + d[None, :], mask=asks[:, None], other=0.0)
    if first >= before:
        ready = seen & (first < end)
        keys, values = load_page(pages + here * page_stride, ready, HEADS, HEAD_DIM, KEYS)
        of_keys = load_scales(scales, here * scale_stride, ready, CODING)
        of_values = load_scales(scales, here * scale_stride + HEADS * PAGE, ready, CODING)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    for n in tl.range(first, end, num_stages=1):
        # The next page is on its way while this one is used.
        later = (j < tl.minimum(PAGE, length - (n + 1 - before) * PAGE)) & (n + 1 < end)
        next_keys, next_values = load_page(pages + following * page_stride, later, HEADS, HEAD_DIM, KEYS)
        of_next_keys = load_scales(scales, following * scale_stride, later, CODING)
        of_next_values = load_scales(scales, following * scale_stride + HEADS * PAGE, later, CODING)
        following = tl.load(table + n + 2, mask=n + 2 < end, other=0) + step
        peak, total, sums = softmax_update(
            q, keys, values, seen, peak, total, sums, of_keys, of_values, CODING
        )
        keys, values, seen = next_keys, next_values, later
        of_keys, of_values = of_next_keys, of_next_values
    let_next_start(CHAINED)
    place, column = split * rows + m, head * HEAD_DIM + d
    store_part(mixed, weights, place, column, head, asks, peak, total, sums, HEADS, HEAD_DIM, SPLITS, CODING)


def paged_attention(
    queries: Tensor,
    places: Places,
    attention: int,
    step: int,
    mixed: Tensor,
    weights: Tensor,
    tile: Tile,
    chained: int = NOT_CHAINED,
) -> None:
    """Softmax of ``queries [M, inner]``, already scaled, in powers of two.

    A frame sees every page before its own block, and of its own block the frames that exist.

    Args:
        mixed: ``[splits, M, inner]``, written: values mixed over each part of the keys.
        weights: float32 ``[splits, M, H]``, written unless there is one split: log2 of each part's share.
    """
    pages = places.pages
    heads, head_dim = pages.shape[-2:]
    splits, size = len(mixed), max(16, next_power_of_2(places.page_frames))
    _paged_attention[(places.rows * heads, places.blocks, splits)](
        queries, pages, scales_of(places), places.table, places.unused, places.lengths, mixed, weights,
        step, len(queries),
        places.new_frames, places.before, len(places.lengths), places.table.shape[1],
        pages.stride(0), attention * pages.stride(1),
        heads, head_dim, places.page_frames, size, size, splits, coding_of(places), chained,
        num_warps=tile.warps, num_stages=tile.stages, launch_pdl=chained > 0,
    )  # fmt: skip


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
        channels, heads, head_dim, places.page_frames, NORM_EPSILON, size, len(mixed),
        tile.columns, tile.stages, coding_of(places), chained,
        num_warps=tile.warps, maxnreg=tile.registers, launch_pdl=chained > 0,
    )  # fmt: skip
