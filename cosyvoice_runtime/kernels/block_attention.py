"""Attention of several new blocks of a row at once: they see the same finished pages, which are read once.

Keys are taken as many at a time as suits the machine, across the ends of pages, which hold no power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.places import Places
from cosyvoice_runtime.kernels.arithmetic import NOT_CHAINED, let_next_start, wait_for_previous
from cosyvoice_runtime.kernels.launch import cdiv, launched, next_power_of_2
from cosyvoice_runtime.kernels.page_codes import coding_of, load_scales, scales_of
from cosyvoice_runtime.kernels.paged_attention import softmax_update, store_part
from cosyvoice_runtime.kernels.tiles import Tile


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


@launched
@triton.jit(do_not_specialize=["step", "rows", "frames", "before", "utterances", "table_width"])
def _block_attention(
    queries, pages, scales, table, unused, lengths, mixed, weights,
    step, rows, frames, before, utterances, table_width, page_stride, layer_start,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr, SIZE: tl.constexpr,
    BLOCKS: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr, STAGES: tl.constexpr,
    CODING: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    group = tl.program_id(1) * BLOCKS
    split = tl.program_id(2)
    INNER: tl.constexpr = HEADS * HEAD_DIM
    i = tl.arange(0, SIZE * BLOCKS)
    j = tl.arange(0, KEYS)
    block = group + i // SIZE
    t = block * PAGE + i % SIZE
    m = row * frames + t
    asks = (i % SIZE < PAGE) & (t < frames)
    column = head * HEAD_DIM + tl.arange(0, HEAD_DIM)
    length = tl.load(lengths + row % utterances).to(tl.int32)
    first = tl.load(unused + row % utterances).to(tl.int32)
    end = before + tl.minimum(group + BLOCKS - 1, (length - 1) // PAGE) + 1
    share = tl.cdiv(end - first, SPLITS)
    first += split * share
    end = tl.minimum(end, first + share)
    finished = tl.maximum(tl.minimum(end, before) - first, 0) * PAGE
    table += row * table_width
    pages += layer_start + head * HEAD_DIM
    scales += layer_start // HEAD_DIM + head * PAGE
    wait_for_previous(CHAINED)
    q = tl.load(queries + m[:, None] * INNER + column[None, :], mask=asks[:, None], other=0.0)
    # Finite: of a part's first keys an earlier block may see none.
    peak = tl.full([SIZE * BLOCKS], -1e30, tl.float32)
    total = tl.zeros([SIZE * BLOCKS], tl.float32)
    sums = tl.zeros([SIZE * BLOCKS, HEAD_DIM], tl.float32)
    for start in tl.range(0, finished, KEYS, num_stages=STAGES):
        key = start + j
        there = key < finished
        keys, values, of_keys, of_values = load_keys(
            pages, scales, table, step, first + key // PAGE, key % PAGE, there, page_stride,
            HEADS, HEAD_DIM, PAGE, CODING,
        )  # fmt: skip
        peak, total, sums = softmax_update(
            q, keys, values, there[None, :], peak, total, sums, of_keys, of_values, CODING
        )
    # New pages, which not every block sees.
    new = tl.maximum(first - before, 0) * PAGE
    until = tl.minimum((end - before) * PAGE, length)
    for start in tl.range(new, until, KEYS, num_stages=1):
        key = start + j
        there = key < until
        keys, values, of_keys, of_values = load_keys(
            pages, scales, table, step, before + key // PAGE, key % PAGE, there, page_stride,
            HEADS, HEAD_DIM, PAGE, CODING,
        )  # fmt: skip
        seen = there[None, :] & ((key // PAGE)[None, :] <= block[:, None])
        peak, total, sums = softmax_update(
            q, keys, values, seen, peak, total, sums, of_keys, of_values, CODING
        )
    let_next_start(CHAINED)
    store_part(
        mixed, weights, split * rows + m, column, head, asks, peak, total, sums,
        HEADS, HEAD_DIM, SPLITS, CODING,
    )  # fmt: skip


def block_attention(
    queries: Tensor,
    places: Places,
    attention: int,
    step: int,
    mixed: Tensor,
    weights: Tensor,
    tile: Tile,
    chained: int = NOT_CHAINED,
) -> None:
    """:func:`~cosyvoice_runtime.kernels.paged_attention.paged_attention`; arguments as there.

    A program has ``tile.repeat`` new blocks and takes ``tile.columns`` keys at a time.
    """
    pages, splits = places.pages, len(mixed)
    blocks = min(tile.repeat, next_power_of_2(places.blocks))
    heads, head_dim = pages.shape[-2:]
    size = max(16, next_power_of_2(places.page_frames))
    grid = places.rows * heads, cdiv(places.blocks, blocks), splits
    _block_attention[grid](
        queries, pages, scales_of(places), places.table, places.unused, places.lengths, mixed, weights,
        step, len(queries), places.new_frames, places.before, len(places.lengths), places.table.shape[1],
        pages.stride(0), attention * pages.stride(1),
        heads, head_dim, places.page_frames, size, blocks, tile.columns, splits, tile.stages,
        coding_of(places), chained,
        num_warps=tile.warps, maxnreg=tile.registers, launch_pdl=chained > 0,
    )  # fmt: skip
