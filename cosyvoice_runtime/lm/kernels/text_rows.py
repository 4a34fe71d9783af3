"""The kernel of rows of attention: how chosen heads share their attention among a sequence's text."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.launch import launched
from cosyvoice_runtime.lm.torch.kept_queries import KeptQueries
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.slot_draws import SlotWork

WARPS = 8
IDLE = tl.constexpr(int(SlotWork.IDLE))


@launched
@triton.jit(do_not_specialize=["count", "batch"])
def _text_rows(
    queries, keys, table, fed, texts, heads, rows,
    count, batch, table_width, kept_stride, layer_stride, page_stride, head_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    RING: tl.constexpr, ROOM: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    own = tl.program_id(0)
    position = tl.load(fed + own)
    slot = tl.load(fed + batch + own)
    first = tl.load(texts + 2 * slot)
    end = tl.load(texts + 2 * slot + 1)
    work = tl.load(fed + 2 * batch + own)
    if (first < end) & (work != IDLE):
        i = tl.arange(0, WIDTH)
        d = tl.arange(0, HEAD_DIM)
        seen = first + i < end
        j = tl.where(seen, first + i, first)
        page = tl.load(table + slot * table_width + j // PAGE).to(tl.int64)
        place = page * page_stride + j % PAGE * HEAD_DIM
        shares = tl.zeros([WIDTH], tl.float32)
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
        row = rows + (slot * RING + position % RING) * ROOM
        tl.store(row + i, (shares / count).to(rows.dtype.element_ty), mask=seen)


def text_rows(
    kept: KeptQueries, cache: KVCache, fed: Tensor, texts: Tensor, rows: Tensor, width: int
) -> None:
    """Compute rows as `ComputeRows` says, a program for each sequence."""
    data, table = cache.data, cache.tables.read
    kv_heads, page, head_dim = data.shape[3:]
    batch = fed.shape[1]
    _text_rows[(batch,)](
        kept.data, data, table, fed, texts, kept.heads, rows,
        len(kept.heads), batch, table.stride(0), kept.data.stride(0),
        data.stride(0), data.stride(2), data.stride(3),
        kept.data.shape[2] // head_dim, kv_heads, head_dim, page, rows.shape[1], rows.shape[2], width,
        num_warps=WARPS,
    )  # fmt: skip
