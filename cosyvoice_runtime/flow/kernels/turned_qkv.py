"""Queries, keys and values of one attention layer, those of the first head turned by their positions.

Keys and values go into their pages.
"""

from __future__ import annotations

from math import gcd

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.kernels.norm_qkv import frame_starts, store_qkv
from cosyvoice_runtime.flow.kernels.page_codes import coding_of, scales_of, whole_heads
from cosyvoice_runtime.flow.torch.dit import Rotation
from cosyvoice_runtime.flow.torch.places import Places
from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    fetch_ahead,
    let_next_start,
    linear_sums,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched
from cosyvoice_runtime.gpu.kernels.tiles import Tile


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
        turns = inside[:, None] & (pair < HEAD_DIM // 2)[None, :]
        c = tl.load(cos + angle, mask=turns, other=1.0)
        s = tl.load(sin + angle, mask=turns, other=0.0)
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
    """
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
