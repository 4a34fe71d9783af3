"""Attention of texts that go on, to their sequences' pages of the cache."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.kernels.paged_attention import softmax_add
from cosyvoice_runtime.gpu.kernels.arithmetic import LOG2_E
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.lm.kernels.prefill_heads import PromptPlaces

ROWS, KEYS, WARPS = 16, 64, 4
"""Sizes of a program, which takes one head: positions that are fed, and keys at a time."""


@launched
@triton.jit(do_not_specialize=["positions", "max_len", "starts_stride", "lengths_stride", "table_width"])
def _prefill_attention(
    packed, starts, lengths, pages, keys, values, mixed,
    positions, max_len, starts_stride, lengths_stride, table_width, page_stride, head_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    SCALE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    head, first, b = tl.program_id(0), tl.program_id(1) * ROWS, tl.program_id(2)
    t = first + tl.arange(0, ROWS)
    d = tl.arange(0, HEAD_DIM)
    inside = (t < positions)[:, None]
    row = (b * positions + t)[:, None]
    q = tl.load(packed + row * WIDTH + head * HEAD_DIM + d[None, :], mask=inside, other=0.0)
    start = tl.load(starts + b * starts_stride).to(tl.int32)
    length = tl.load(lengths + b * lengths_stride).to(tl.int32)
    # Nothing is read where nothing is fed; what padding sees instead, nobody needs.
    end = tl.minimum(start + tl.minimum(length, first + ROWS), max_len)
    pages += b * table_width
    keys += head // (HEADS // KV_HEADS) * head_stride
    values += head // (HEADS // KV_HEADS) * head_stride
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    for block in range(0, end, KEYS):
        j = block + tl.arange(0, KEYS)
        seen = j < end
        page = tl.load(pages + j // PAGE, mask=seen, other=0).to(tl.int64)
        place = page * page_stride + j % PAGE * HEAD_DIM
        k = tl.load(keys + place[None, :] + d[:, None], mask=seen[None, :], other=0.0)
        v = tl.load(values + place[:, None] + d[None, :], mask=seen[:, None], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * SCALE
        visible = seen[None, :] & (j[None, :] <= (start + t)[:, None])
        scores = tl.where(visible, scores, float("-inf"))
        peak, total, sums = softmax_add(scores, v, peak, total, sums)
    mean = sums / total[:, None]
    at = mixed + row * (HEADS * HEAD_DIM) + head * HEAD_DIM + d[None, :]
    tl.store(at, mean.to(mixed.dtype.element_ty), mask=inside)


def prefill_attention(packed: Tensor, places: PromptPlaces, mixed: Tensor) -> None:
    """Every position sees those before it in the cache, and itself; what padding gives means nothing.

    Args:
        packed: ``[B, T, H + 2 kv_heads, D]``, of which queries are read, in the cache's type.
        places: hold the keys and values of the positions that are fed, too.
        mixed: ``[B, T, H, D]``, written.
    """
    batch, positions, heads, head_dim = packed.shape
    kv_heads, table = places.keys.shape[1], places.tables.read
    heads -= 2 * kv_heads
    _prefill_attention[(heads, cdiv(positions, ROWS), batch)](
        packed, places.starts, places.lengths, table, places.keys, places.values, mixed,
        positions, places.max_len, places.starts.stride(0), places.lengths.stride(0), table.stride(0),
        places.keys.stride(0), places.keys.stride(1),
        heads, kv_heads, head_dim, places.page, head_dim**-0.5 * LOG2_E, ROWS, KEYS, num_warps=WARPS,
    )  # fmt: skip
