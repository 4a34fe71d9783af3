"""The kernel of rows of attention: how chosen heads share their attention among a sequence's text."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.launch import launched
from cosyvoice_runtime.lm.torch.kept_queries import KeptQueries
from cosyvoice_runtime.lm.torch.kv_cache import KVCache

WARPS = 8


@launched
@triton.jit(do_not_specialize=["count"])
def _text_rows(
    queries, keys, table, asked, heads, rows,
    count, table_width, kept_stride, layer_stride, page_stride, head_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    MOST: tl.constexpr,
):  # fmt: skip
    which = tl.program_id(0)
    own = tl.load(asked + 4 * which)
    slot = tl.load(asked + 4 * which + 1)
    first = tl.load(asked + 4 * which + 2)
    end = tl.load(asked + 4 * which + 3)
    i = tl.arange(0, MOST)
    d = tl.arange(0, HEAD_DIM)
    seen = first + i < end
    j = tl.where(seen, first + i, first)
    page = tl.load(table + slot * table_width + j // PAGE).to(tl.int64)
    place = page * page_stride + j % PAGE * HEAD_DIM
    shares = tl.zeros([MOST], tl.float32)
    for number in tl.range(0, count):
        of_kept = tl.load(heads + 3 * number)
        layer = tl.load(heads + 3 * number + 1).to(tl.int64)
        head = tl.load(heads + 3 * number + 2)
        q = tl.load(queries + of_kept * kept_stride + (own * HEADS + head) * HEAD_DIM + d)
        start = layer * layer_stride + head // (HEADS // KV_HEADS) * head_stride
        k = tl.load(keys + start + place[:, None] + d[None, :], mask=seen[:, None], other=0.0)
        scores = tl.sum(k.to(tl.float32) * q.to(tl.float32)[None, :], axis=1)
        scores = tl.where(seen, scores, float("-inf"))
        weights = tl.exp2(scores - tl.max(scores, axis=0))
        shares += weights / tl.sum(weights, axis=0)
    tl.store(rows + which * MOST + i, (shares / count).to(rows.dtype.element_ty))


def text_rows(kept: KeptQueries, cache: KVCache, asked: Tensor, rows: Tensor) -> None:
    """Compute rows as `ComputeRows` says, a program for each."""
    data, table = cache.data, cache.tables.read
    kv_heads, page, head_dim = data.shape[3:]
    _text_rows[(len(asked),)](
        kept.data, data, table, asked, kept.heads, rows,
        len(kept.heads), table.stride(0), kept.data.stride(0), data.stride(0), data.stride(2), data.stride(3),
        kept.data.shape[2] // head_dim, kv_heads, head_dim, page, rows.shape[1], num_warps=WARPS,
    )  # fmt: skip
