"""LayerNorm, queries, keys and values of one attention layer; keys and values go into their pages."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.places import Places
from cosyvoice_runtime.kernels.arithmetic import NOT_CHAINED, let_next_start, normalise, wait_for_previous
from cosyvoice_runtime.kernels.launch import cdiv, launched
from cosyvoice_runtime.kernels.tiles import Tile

EPSILON = 1e-5
Linear = tuple[Tensor, Tensor]
"""A weight in the network's type and its float32 bias."""


@triton.jit
def store_qkv(packed, queries, pages, m, start, inside, n, is_query, INNER: tl.constexpr):
    """Columns ``n`` of queries, keys and values; all are queries or none is."""
    # Separate stores: the compiler cannot merge writes to computed addresses.
    if is_query:
        tl.store(queries + m[:, None] * INNER + n[None, :], packed, mask=inside[:, None])
    else:
        tl.store(pages + start[:, None] + (n - INNER)[None, :], packed, mask=inside[:, None])


@launched
@triton.jit(do_not_specialize=["step", "rows", "frames"])
def _norm_qkv(
    x, weight, bias, queries, pages, page, frame, step, rows, frames, x_stride, page_stride, layer_start,
    CHANNELS: tl.constexpr, INNER: tl.constexpr, EPS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, REPEAT: tl.constexpr, STAGES: tl.constexpr,
    CHAINED: tl.constexpr,
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
    start = stored * page_stride + layer_start + place * (2 * INNER)
    if REPEAT == 1:
        packed = tl.dot(normed, w, input_precision="ieee") + tl.load(bias + n)[None, :]
        let_next_start(CHAINED)
        store_qkv(
            packed.to(queries.dtype.element_ty), queries, pages, m, start, inside, n, column < INNER, INNER
        )
    else:
        for turn in tl.range(0, REPEAT, num_stages=STAGES):
            w = tl.load(at + turn * (COLUMNS * CHANNELS))
            packed = tl.dot(normed, w, input_precision="ieee") + tl.load(bias + turn * COLUMNS + n)[None, :]
            packed = packed.to(queries.dtype.element_ty)
            store_qkv(packed, queries, pages, m, start, inside, turn * COLUMNS + n, column < INNER, INNER)
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
    """
    Args:
        x: float32 ``[M, C]`` of all rows' frames; its rows may be further apart.
        weight, bias: ``[3 * inner, C]`` and float32 ``[3 * inner]``, with the norm's scale and shift in them.
        queries: ``[M, inner]``, written.
        places: pages, written where the new frames belong.
        attention, step: numbers of the layer and of the solver's step.
    """
    rows, channels = x.shape
    inner = queries.shape[1]
    pages = places.pages
    columns = min(tile.columns, inner)
    repeat = min(tile.repeat, inner // columns)
    grid = (3 * inner // (columns * repeat), cdiv(rows, tile.rows))
    _norm_qkv[grid](
        x, weight, bias, queries, pages, places.page, places.frame, step, rows, places.new_frames,
        x.stride(0), pages.stride(0), attention * pages.stride(1),
        channels, inner, EPSILON, tile.rows, columns, repeat, tile.stages, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


def norm_qkv_plain(
    x: Tensor, weight: Tensor, bias: Tensor, queries: Tensor, places: Places, attention: int, step: int
) -> None:
    """As :func:`norm_qkv`."""
    inner = queries.shape[1]
    packed = F.linear(F.layer_norm(x, x.shape[1:], eps=EPSILON), weight.float(), bias)
    queries.copy_(packed[:, :inner])
    frame = places.frame.repeat(len(x) // places.new_frames)
    heads = packed[:, inner:].unflatten(1, (2, *places.pages.shape[-2:]))
    places.pages[places.page.flatten() + step, attention, frame] = heads.to(places.pages.dtype)


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
    """As the kernels take those of a network."""
    return layer.weight.detach(), layer.bias.float()


def folded(norm: torch.nn.LayerNorm, linear: torch.nn.Linear) -> tuple[Tensor, Tensor]:
    """float32 weight and bias of the linear layer with the norm's scale and shift in them."""
    weight = linear.weight.float()
    bias = weight @ norm.bias.float()
    if linear.bias is not None:
        bias = bias + linear.bias.float()
    return (weight * norm.weight.float()).contiguous(), bias
