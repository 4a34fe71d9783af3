"""Attention of one new position of each sequence to its pages of the cache, its keys in parts."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.kernels.paged_attention import softmax_update
from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    let_next_start,
    let_next_start_at_once,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import launched, next_power_of_2
from cosyvoice_runtime.lm.kernels.layer_pages import CacheLayer
from cosyvoice_runtime.lm.kernels.step_residual import SHRINK


@triton.jit
def _load_block(
    keys, values, page, first, seen, page_stride,
    PAGE: tl.constexpr, HEAD_DIM: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Keys ``[D, KEYS]`` and values ``[KEYS, D]`` from position ``first`` on; zeros where not seen."""
    start = page.to(tl.int64) * page_stride + first % PAGE * HEAD_DIM
    j = tl.arange(0, KEYS)
    d = tl.arange(0, HEAD_DIM)
    k = tl.load(keys + start + j[None, :] * HEAD_DIM + d[:, None], mask=seen[None, :], other=0.0)
    v = tl.load(values + start + j[:, None] * HEAD_DIM + d[None, :], mask=seen[:, None], other=0.0)
    return k, v


@launched
@triton.jit(do_not_specialize=["batch"])
def _step_attention(
    queries, keys, values, table, positions, mixed, shares, batch, table_width, page_stride, head_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr,
    SHRINK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    slot = tl.program_id(0) // KV_HEADS
    kv = tl.program_id(0) % KV_HEADS
    split = tl.program_id(1)
    i = tl.arange(0, QUERIES)
    j = tl.arange(0, KEYS)
    d = tl.arange(0, HEAD_DIM)
    position = tl.load(positions + slot).to(tl.int32)
    part = tl.cdiv(position + 1, SPLITS * KEYS) * KEYS
    first = split * part
    end = tl.minimum(position + 1, first + part)
    table += slot * table_width
    keys += kv * head_stride
    values += kv * head_stride
    page = tl.load(table + first // PAGE, mask=first < end, other=0)
    # Earlier positions are there already; the new one only after the wait.
    before = first + j < tl.minimum(end, position)
    k, v = _load_block(keys, values, page, first, before, page_stride, PAGE, HEAD_DIM, KEYS)
    following = tl.load(table + (first + KEYS) // PAGE, mask=first + KEYS < end, other=0)
    seen = first + j < end
    asks = (i < GROUP)[:, None]
    head = slot * HEADS + kv * GROUP + i
    wait_for_previous(CHAINED)
    q = tl.load(queries + head[:, None] * HEAD_DIM + d[None, :], mask=asks, other=0.0)
    if first + KEYS > position:
        k, v = _load_block(keys, values, page, first, seen, page_stride, PAGE, HEAD_DIM, KEYS)
    peak = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    sums = tl.zeros([QUERIES, HEAD_DIM], tl.float32)
    for block in tl.range(first, end, KEYS, num_stages=1):
        # The next keys are on their way while these are used.
        after = block + KEYS
        later = after + j < end
        next_k, next_v = _load_block(keys, values, following, after, later, page_stride, PAGE, HEAD_DIM, KEYS)
        following = tl.load(table + (after + KEYS) // PAGE, mask=after + KEYS < end, other=0)
        peak, total, sums = softmax_update(q, k, v, seen, peak, total, sums)
        k, v, seen = next_k, next_v, later
    let_next_start(CHAINED)
    some = tl.where(total > 0, total, 1.0)  # a part without keys is zeros, and weighs nothing
    mean = sums * (SHRINK / some)[:, None]
    place = split * batch * HEADS + head
    at = mixed + place[:, None] * HEAD_DIM + d[None, :]
    tl.store(at, mean.to(mixed.dtype.element_ty), mask=asks)
    if SPLITS > 1:
        tl.store(shares + place, peak + tl.log2(total), mask=i < GROUP)


def step_attention(
    queries: Tensor,
    cache: CacheLayer,
    mixed: Tensor,
    shares: Tensor,
    keys: int,
    warps: int,
    chained: int = NOT_CHAINED,
) -> None:
    """Softmax of ``queries [S, H * D]``, already scaled, in powers of two, over all positions so far.

    Args:
        mixed: ``[parts, S, H * D]``, written: values mixed over each part of the keys; `SHRINK`
            times their size.
        shares: float32 ``[parts, S, H]``, written unless there is one part: log2 of each part's share.
        keys: positions that a program takes at a time; they lie in one page.

    Raises:
        ValueError: pages are no multiple of ``keys``, and a slot has several.
    """
    batch, (_, kv_heads, page, head_dim) = len(queries), cache.keys.shape
    table = cache.tables.read
    if page % keys and table.shape[1] > 1:
        raise ValueError(f"{keys} keys at a time don't divide pages of {page} positions")
    heads = queries.shape[1] // head_dim
    _step_attention[(batch * kv_heads, len(mixed))](
        queries, cache.keys, cache.values, table, cache.positions, mixed, shares,
        batch, table.stride(0), cache.keys.stride(0), cache.keys.stride(1),
        heads, kv_heads, head_dim, page, max(16, next_power_of_2(heads // kv_heads)), keys, len(mixed),
        SHRINK, chained, num_warps=warps, launch_pdl=chained > 0,
    )  # fmt: skip
