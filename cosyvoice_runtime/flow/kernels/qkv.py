"""Queries, keys and values of one attention layer; keys and values go into their pages."""

from __future__ import annotations

from math import gcd

import torch
import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.kernels.layers import NORM_EPSILON
from cosyvoice_runtime.flow.kernels.page_codes import coding_of, scales_of, store_coded, whole_heads
from cosyvoice_runtime.flow.torch.call_pages import Places
from cosyvoice_runtime.flow.torch.dit import Rotation
from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    fetch_ahead,
    let_next_start,
    linear_sums,
    normalise,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.gpu.kernels.tiles import Tile

Linear = tuple[Tensor, Tensor]
"""A weight in the network's type and its float32 bias."""


@triton.jit
def store_qkv(
    packed, queries, pages, scales, m, start, scale_start, inside, column, is_query,
    INNER: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, CODING: tl.constexpr,
):  # fmt: skip
    """Columns from ``column`` on of queries, keys and values, float32.

    Args:
        start, scale_start: of the rows ``m``, as :func:`frame_starts` gives them.
        is_query: all columns of a program are queries, or none is: its loop takes that from outside.
    """
    n = column + tl.arange(0, COLUMNS)
    rounded = packed.to(queries.dtype.element_ty)
    # Separate stores: the compiler cannot merge writes to computed addresses.
    if is_query:
        tl.store(queries + m[:, None] * INNER + n[None, :], rounded, mask=inside[:, None])
    elif CODING:
        first = column - INNER
        store_coded(pages, scales, packed, start, scale_start, inside, first, HEAD_DIM, PAGE, COLUMNS, ROWS)
    else:
        tl.store(pages + start[:, None] + (n - INNER)[None, :], rounded, mask=inside[:, None])


@triton.jit
def frame_starts(stored, place, page_stride, layer_start, INNER: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Where frames ``place`` of the pages ``stored`` begin, and the scales of their first heads."""
    start = stored * page_stride + layer_start + place * (2 * INNER)
    return start, stored * (page_stride // HEAD_DIM) + layer_start // HEAD_DIM + place


@launched
@triton.jit(do_not_specialize=["step", "rows", "frames"])
def _norm_qkv(
    x, weight, bias, queries, pages, scales, page, frame,
    step, rows, frames, x_stride, page_stride, layer_start,
    CHANNELS: tl.constexpr, INNER: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    EPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, REPEAT: tl.constexpr,
    STAGES: tl.constexpr, CODING: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * (COLUMNS * REPEAT)
    n = column + tl.arange(0, COLUMNS)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, CHANNELS)
    at = weight + n[None, :] * CHANNELS + c[:, None]
    if REPEAT == 1:
        w = tl.load(at)
    wait_for_previous(CHAINED)
    inside = m < rows
    hidden = tl.load(x + m[:, None] * x_stride + c[None, :], mask=inside[:, None], other=0.0)
    normed = normalise(hidden, CHANNELS, EPS).to(weight.dtype.element_ty)
    stored = tl.load(page + m, mask=inside, other=0) + step
    place = tl.load(frame + m % frames, mask=inside, other=0)
    start, scale_start = frame_starts(stored, place, page_stride, layer_start, INNER, HEAD_DIM)
    if REPEAT == 1:
        packed = tl.dot(normed, w, input_precision="ieee") + tl.load(bias + n)[None, :]
        let_next_start(CHAINED)
        store_qkv(
            packed, queries, pages, scales, m, start, scale_start, inside, column, column < INNER,
            INNER, HEAD_DIM, PAGE, ROWS, COLUMNS, CODING,
        )  # fmt: skip
    else:
        for index in tl.range(0, REPEAT, num_stages=STAGES):
            w = tl.load(at + index * (COLUMNS * CHANNELS))
            packed = tl.dot(normed, w, input_precision="ieee") + tl.load(bias + index * COLUMNS + n)[None, :]
            store_qkv(
                packed, queries, pages, scales, m, start, scale_start, inside, column + index * COLUMNS,
                column < INNER, INNER, HEAD_DIM, PAGE, ROWS, COLUMNS, CODING,
            )  # fmt: skip
        let_next_start(CHAINED)


def norm_qkv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    queries: Tensor,
    places: Places,
    attention: int,
    step: int,
    tile: Tile,
    chained: int = NOT_CHAINED,
) -> None:
    """Compute queries, keys and values of normed frames.

    Args:
        x: float32 ``[M, C]`` of all rows' frames; its rows may be further apart.
        weight, bias: ``[3 * inner, C]`` and float32 ``[3 * inner]``, with the norm's scale and shift in them.
        queries: ``[M, inner]``, written.
        places: pages, written where the new frames belong.
        attention, step: numbers of the layer and of the solver's step.
    """
    rows, channels = x.shape
    inner, head_dim = queries.shape[1], places.pages.shape[-1]
    pages, coding = places.pages, coding_of(places)
    columns = min(whole_heads(tile.columns, head_dim, coding), inner)
    repeat = min(tile.repeat, inner // columns)
    grid = (3 * inner // (columns * repeat), cdiv(rows, tile.rows))
    _norm_qkv[grid](
        x, weight, bias, queries, pages, scales_of(places), places.page, places.frame, step, rows,
        places.new_frames, x.stride(0), pages.stride(0), attention * pages.stride(1),
        channels, inner, head_dim, places.page_frames, NORM_EPSILON, tile.rows, columns, repeat, tile.stages,
        coding, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


def packed_qkv(norm: torch.nn.LayerNorm, qkv: torch.nn.Linear, head_dim: int) -> tuple[Tensor, Tensor]:
    """``weight`` and ``bias`` of :func:`norm_qkv`; queries are scaled for a softmax in powers of two."""
    weight, bias = folded(norm, qkv)
    scale = softmax_scale(weight, head_dim)
    return (weight * scale[:, None]).to(qkv.weight.dtype), bias * scale


def softmax_scale(weight: Tensor, head_dim: int) -> Tensor:
    """float32 ``[3 * inner]`` for rows of queries, keys and values: softmax is in powers of two."""
    scale = torch.ones(len(weight), device=weight.device)
    scale[: len(weight) // 3] = head_dim**-0.5 * 1.4426950408889634
    return scale


def linear_of(layer: torch.nn.Linear) -> Linear:
    return layer.weight.detach(), layer.bias.float()


def folded(norm: torch.nn.LayerNorm, linear: torch.nn.Linear) -> tuple[Tensor, Tensor]:
    """float32 weight and bias of the linear layer with the norm's scale and shift in them."""
    weight = linear.weight.float()
    bias = weight @ norm.bias.float()
    if linear.bias is not None:
        bias = bias + linear.bias.float()
    return (weight * norm.weight.float()).contiguous(), bias


@launched
@triton.jit(do_not_specialize=["step", "rows", "frames", "before", "utterances", "angles"])
def _turned_qkv(
    hidden, weight, bias, cos, sin, queries, pages, scales, page, frame, unused,
    step, rows, frames, before, utterances, angles, page_stride, layer_start,
    WIDTH: tl.constexpr, INNER: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
    AHEAD: tl.constexpr, CODING: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    PAIRS: tl.constexpr = COLUMNS // 2
    column = tl.program_id(0) * COLUMNS
    n = column + tl.arange(0, COLUMNS)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = m < rows
    b = tl.load(bias + n)
    fetch_ahead(weight, n, WIDTH, AHEAD, CHAINED)
    wait_for_previous(CHAINED)
    stored = tl.load(page + m, mask=inside, other=0) + step
    place = tl.load(frame + m % frames, mask=inside, other=0)
    sums = linear_sums(hidden, weight, m, n, inside, WIDTH, ROWS, COLUMNS, DEPTH, STAGES) + b[None, :]
    if (column % INNER < HEAD_DIM) & (column < 2 * INNER):
        finished = before - tl.load(unused + (m // frames) % utterances, mask=inside, other=0).to(tl.int32)
        position = tl.minimum(finished * PAGE + m % frames, angles - 1)  # padding may lie beyond the table
        pair = (column % INNER) // 2 + tl.arange(0, PAIRS)
        angle = position[:, None] * (HEAD_DIM // 2) + pair[None, :]
        rotated = inside[:, None] & (pair < HEAD_DIM // 2)[None, :]
        c = tl.load(cos + angle, mask=rotated, other=1.0)
        s = tl.load(sin + angle, mask=rotated, other=0.0)
        even, odd = tl.split(tl.reshape(sums, [ROWS, PAIRS, 2]))
        sums = tl.reshape(tl.join(even * c - odd * s, odd * c + even * s), [ROWS, COLUMNS])
    let_next_start(CHAINED)
    start, scale_start = frame_starts(stored, place, page_stride, layer_start, INNER, HEAD_DIM)
    store_qkv(
        sums, queries, pages, scales, m, start, scale_start, inside, column, column < INNER,
        INNER, HEAD_DIM, PAGE, ROWS, COLUMNS, CODING,
    )  # fmt: skip


def turned_qkv(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    rotation: Rotation,
    queries: Tensor,
    places: Places,
    attention: int,
    step: int,
    tile: Tile,
    chained: int = NOT_CHAINED,
) -> None:
    """Compute queries, keys and values, and rotate the first head's queries and keys by their frames.

    Args:
        hidden: ``[M, C]`` of all rows' frames, normed.
        weight, bias: ``[3 * inner, C]`` and float32 ``[3 * inner]``.
        rotation: of as many frames as an utterance can have, ``[1, frames, 1, D / 2]``.
        queries: ``[M, inner]``, written.
        places: pages, written where the new frames belong.
        attention, step: numbers of the layer and of the solver's step.
    """
    rows, width = hidden.shape
    inner, head_dim = queries.shape[1], places.pages.shape[-1]
    pages, coding = places.pages, coding_of(places)
    columns = min(whole_heads(tile.columns, head_dim, coding), inner)
    _turned_qkv[(3 * inner // columns, cdiv(rows, tile.rows))](
        hidden, weight, bias, rotation.cos, rotation.sin, queries, pages, scales_of(places), places.page,
        places.frame, places.unused, step, rows, places.new_frames, places.before, len(places.unused),
        rotation.cos.shape[1], pages.stride(0), attention * pages.stride(1),
        width, inner, head_dim, places.page_frames,
        tile.rows, columns, gcd(tile.depth, width), tile.stages, tile.ahead, coding, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
