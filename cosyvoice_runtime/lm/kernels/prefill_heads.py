"""Biases and rotation of a product's queries and keys; keys and values go to their places in the cache."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.lm.kernels.layer_pages import LayerPages
from cosyvoice_runtime.lm.kernels.step_qkv import RotaryTable

ROWS, WARPS = 16, 2
"""Positions of a program, which takes one head of them."""


@dataclass(frozen=True, eq=False)
class PromptPlaces(LayerPages):
    """One layer of the slots that prompts are fed to, and where in them.

    Attributes:
        starts: ``[B]`` int64, position of each prompt's first code; they may lie apart, as lengths may.
        lengths: ``[B]`` int64, at least 1; what lies behind them is padding.
        max_len: most positions of a slot.
    """

    starts: Tensor
    lengths: Tensor
    max_len: int


@launched
@triton.jit(do_not_specialize=["positions", "max_len", "starts_stride", "lengths_stride", "table_width"])
def _prefill_heads(
    packed, bias, cosines, sines, starts, lengths, pages, keys, values,
    positions, max_len, starts_stride, lengths_stride, table_width, page_stride, head_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = HEAD_DIM // 2
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    head = tl.program_id(0)
    t = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    b = tl.program_id(2)
    d = tl.arange(0, HALF)[None, :]
    inside = (t < positions)[:, None]
    at = packed + (b * positions + t)[:, None] * WIDTH + head * HEAD_DIM + d
    first_bias = tl.load(bias + head * HEAD_DIM + d).to(tl.float32)
    second_bias = tl.load(bias + head * HEAD_DIM + HALF + d).to(tl.float32)
    x = tl.load(at, mask=inside, other=0.0).to(tl.float32) + first_bias
    y = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32) + second_bias
    position = tl.load(starts + b * starts_stride).to(tl.int32) + t
    known = tl.minimum(position, max_len - 1)
    if head < HEADS + KV_HEADS:
        cosine = tl.load(cosines + known[:, None] * HALF + d)
        sine = tl.load(sines + known[:, None] * HALF + d)
        turned = x * cosine - y * sine
        y = y * cosine + x * sine
        x = turned
    first, second = x.to(packed.dtype.element_ty), y.to(packed.dtype.element_ty)
    tl.store(at, first, mask=inside)
    tl.store(at + HALF, second, mask=inside)
    if head >= HEADS:
        fed = (t < tl.load(lengths + b * lengths_stride)) & (t < positions) & (position < max_len)
        page = tl.load(pages + b * table_width + known // PAGE, mask=fed, other=0).to(tl.int64)
        place = (page * page_stride + known % PAGE * HEAD_DIM)[:, None] + d
        place += (head - HEADS) % KV_HEADS * head_stride
        if head < HEADS + KV_HEADS:
            tl.store(keys + place, first.to(keys.dtype.element_ty), mask=fed[:, None])
            tl.store(keys + place + HALF, second.to(keys.dtype.element_ty), mask=fed[:, None])
        else:
            tl.store(values + place, first.to(values.dtype.element_ty), mask=fed[:, None])
            tl.store(values + place + HALF, second.to(values.dtype.element_ty), mask=fed[:, None])


def prefill_heads(packed: Tensor, bias: Tensor, rotation: RotaryTable, places: PromptPlaces) -> None:
    """Of padding, nothing is written to the cache.

    Args:
        packed: ``[B, T, H + 2 kv_heads, D]``, queries, keys and values of every position, changed.
        bias: ``[(H + 2 kv_heads) * D]``.
        rotation: of ``max_len`` positions at least.
        places: written.
    """
    batch, positions, heads, head_dim = packed.shape
    kv_heads = places.keys.shape[1]
    written = places.tables.written
    _prefill_heads[(heads, cdiv(positions, ROWS), batch)](
        packed, bias, rotation.cosines, rotation.sines, places.starts, places.lengths, written,
        places.keys, places.values,
        positions, places.max_len, places.starts.stride(0), places.lengths.stride(0), written.stride(0),
        places.keys.stride(0), places.keys.stride(1),
        heads - 2 * kv_heads, kv_heads, head_dim, places.page, ROWS, num_warps=WARPS,
    )  # fmt: skip
