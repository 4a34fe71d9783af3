"""Linear layers of a step behind an RMSNorm: queries, keys and values, gate and up layers, and the head."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import (
    LOG2_E,
    NOT_CHAINED,
    let_next_start,
    let_next_start_at_once,
    silu,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import cdiv, launched, next_power_of_2
from cosyvoice_runtime.gpu.kernels.step_tiles import StepTile
from cosyvoice_runtime.lm.kernels.step_residual import SHRINK, Scaled
from cosyvoice_runtime.lm.kernels.step_rows import (
    held,
    held_pair,
    inverse_norm,
    load_added,
    load_pieces,
    load_squares,
    streamed,
    streamed_pair,
)
from cosyvoice_runtime.lm.torch.kv_cache import CacheLayer
from cosyvoice_runtime.lm.torch.network import RotaryTable


@triton.jit
def _store_half(
    half, d, queries, keys, values, s, inside, row, head, head_stride, SCALE: tl.constexpr,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    if head < HEADS:
        at = queries + s[:, None] * (HEADS * HEAD_DIM) + head * HEAD_DIM + d[None, :]
        tl.store(at, (half * SCALE).to(queries.dtype.element_ty), mask=inside[:, None])
    else:
        kv = (head - HEADS) % KV_HEADS
        place = row[:, None] + kv * head_stride + d[None, :]
        if head < HEADS + KV_HEADS:
            tl.store(keys + place, half.to(keys.dtype.element_ty), mask=inside[:, None])
        else:
            tl.store(values + place, half.to(values.dtype.element_ty), mask=inside[:, None])


@launched
@triton.jit(do_not_specialize=["batch"])
def _step_qkv(
    scaled, squares, weight, bias, cosines, sines, positions, pages, queries, keys, values, added,
    batch, table_width, page_stride, head_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, SCALE: tl.constexpr,
    PAGE: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, PADDED_PARTS: tl.constexpr,
    EPS: tl.constexpr, SHRINK: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
    STAGES: tl.constexpr, ADAPTED: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    PIECES: tl.constexpr = (WIDTH + PIECE - 1) // PIECE
    HALF: tl.constexpr = HEAD_DIM // 2
    head = tl.program_id(0) // (HALF // ROWS)
    d = (tl.program_id(0) % (HALF // ROWS)) * ROWS + tl.arange(0, ROWS)
    n = head * HEAD_DIM + d
    s = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = s < batch
    if STAGES == 0:
        first = load_pieces(weight, n, PIECES, WIDTH, PIECE, GROUPS)
        second = load_pieces(weight, n + HALF, PIECES, WIDTH, PIECE, GROUPS)
    first_bias = tl.load(bias + n)
    second_bias = tl.load(bias + n + HALF)
    position = tl.load(positions + s, mask=inside, other=0)
    page = tl.load(pages + s * table_width + position // PAGE, mask=inside, other=0)
    row = page.to(tl.int64) * page_stride + position % PAGE * HEAD_DIM
    turned = inside[:, None] & (head < HEADS + KV_HEADS)
    cosine = tl.load(cosines + position[:, None] * HALF + d[None, :], mask=turned, other=1.0)
    sine = tl.load(sines + position[:, None] * HALF + d[None, :], mask=turned, other=0.0)
    wait_for_previous(CHAINED)
    parts = load_squares(squares, s, inside, PARTS, PADDED_PARTS)
    if STAGES:
        x, y = streamed_pair(weight, n, n + HALF, scaled, s, batch, WIDTH, ROWS, COLUMNS, PIECE, STAGES)
    else:
        x, y = held_pair(first, second, scaled, s, inside, WIDTH, ROWS, COLUMNS, PIECE, GROUPS)
    if ADAPTED:
        OUTPUTS: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
        x += load_added(added, s, n, inside, OUTPUTS)
        y += load_added(added, s, n + HALF, inside, OUTPUTS)
    scale = inverse_norm(parts, WIDTH, EPS, SHRINK)
    let_next_start(CHAINED)
    x = x * scale + first_bias[None, :]
    y = y * scale + second_bias[None, :]
    _store_half(
        x * cosine - y * sine, d, queries, keys, values, s, inside, row, head, head_stride,
        SCALE, HEADS, KV_HEADS, HEAD_DIM,
    )  # fmt: skip
    _store_half(
        y * cosine + x * sine, d + HALF, queries, keys, values, s, inside, row, head, head_stride,
        SCALE, HEADS, KV_HEADS, HEAD_DIM,
    )  # fmt: skip


def step_qkv(
    scaled: Scaled,
    weight: Tensor,
    bias: Tensor,
    rotation: RotaryTable,
    epsilon: float,
    queries: Tensor,
    cache: CacheLayer,
    tile: StepTile,
    chained: int = NOT_CHAINED,
    added: Tensor | None = None,
) -> None:
    """Write queries, and keys and values to the cache.

    Args:
        weight, bias: ``[(H + 2 kv_heads) * D, C]`` and float32 ``[(H + 2 kv_heads) * D]``.
        queries: ``[S, H * D]``, written; scaled for a softmax in powers of two.
        cache: written at its positions.
        added: float32 ``[S, (H + 2 kv_heads) * D]``, what adapters add to the products.
    """
    batch, width = scaled.values.shape
    parts = scaled.squares.shape[1]
    _, kv_heads, _, head_dim = cache.keys.shape
    rows = min(tile.rows, head_dim // 2)
    grid = (len(weight) // (2 * rows), cdiv(batch, tile.columns))
    _step_qkv[grid](
        scaled.values, scaled.squares, weight, bias, rotation.cosines, rotation.sines, cache.positions,
        cache.tables.written, queries, cache.keys, cache.values, scaled.squares if added is None else added,
        batch, cache.tables.written.stride(0), cache.keys.stride(0), cache.keys.stride(1),
        queries.shape[1] // head_dim, kv_heads, head_dim, head_dim**-0.5 * LOG2_E,
        cache.page, width, parts, next_power_of_2(parts), epsilon, SHRINK,
        rows, tile.columns, tile.piece, tile.groups, tile.stages, added is not None, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["batch"])
def _step_gated(
    scaled, squares, weight, inner, added, batch,
    WIDTH: tl.constexpr, INNER: tl.constexpr,
    PARTS: tl.constexpr, PADDED_PARTS: tl.constexpr, EPS: tl.constexpr, SHRINK: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
    STAGES: tl.constexpr, ADAPTED: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    PIECES: tl.constexpr = (WIDTH + PIECE - 1) // PIECE
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    s = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = s < batch
    if STAGES:
        wait_for_previous(CHAINED)
        parts = load_squares(squares, s, inside, PARTS, PADDED_PARTS)
        gate, up = streamed_pair(weight, n, n + INNER, scaled, s, batch, WIDTH, ROWS, COLUMNS, PIECE, STAGES)
    else:
        gate_rows = load_pieces(weight, n, PIECES, WIDTH, PIECE, GROUPS)
        up_rows = load_pieces(weight, n + INNER, PIECES, WIDTH, PIECE, GROUPS)
        wait_for_previous(CHAINED)
        parts = load_squares(squares, s, inside, PARTS, PADDED_PARTS)
        gate, up = held_pair(gate_rows, up_rows, scaled, s, inside, WIDTH, ROWS, COLUMNS, PIECE, GROUPS)
    if ADAPTED:
        gate += load_added(added, s, n, inside, 2 * INNER)
        up += load_added(added, s, n + INNER, inside, 2 * INNER)
    scale = inverse_norm(parts, WIDTH, EPS, SHRINK)
    let_next_start(CHAINED)
    gate *= scale
    gated = silu(gate) * (up * scale) * SHRINK
    at = inner + s[:, None] * INNER + n[None, :]
    tl.store(at, gated.to(inner.dtype.element_ty), mask=inside[:, None])


def step_gated(
    scaled: Scaled,
    weight: Tensor,
    epsilon: float,
    inner: Tensor,
    tile: StepTile,
    chained: int = NOT_CHAINED,
    added: Tensor | None = None,
) -> None:
    """Write the gated feed-forward.

    Args:
        weight: ``[2 * I, C]``, the gate's rows first.
        inner: ``[S, I]``, written; `SHRINK` times its size.
        added: float32 ``[S, 2 * I]``, what adapters add to the products.
    """
    batch, width = scaled.values.shape
    parts, size = scaled.squares.shape[1], inner.shape[1]
    _step_gated[(size // tile.rows, cdiv(batch, tile.columns))](
        scaled.values, scaled.squares, weight, inner, scaled.squares if added is None else added, batch,
        width, size, parts, next_power_of_2(parts), epsilon, SHRINK,
        tile.rows, tile.columns, tile.piece, tile.groups, tile.stages, added is not None, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["batch"])
def _step_head(
    scaled, squares, weight, bias, logits, batch,
    WIDTH: tl.constexpr, TOKENS: tl.constexpr,
    PARTS: tl.constexpr, PADDED_PARTS: tl.constexpr, EPS: tl.constexpr, SHRINK: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
    STAGES: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    PIECES: tl.constexpr = (WIDTH + PIECE - 1) // PIECE
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    s = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = s < batch
    known = tl.minimum(n, TOKENS - 1)  # The last program's rows end with the table.
    b = tl.load(bias + known)
    if STAGES:
        wait_for_previous(CHAINED)
        parts = load_squares(squares, s, inside, PARTS, PADDED_PARTS)
        found = streamed(weight, known, scaled, s, batch, WIDTH, ROWS, COLUMNS, PIECE, STAGES)
    else:
        rows = load_pieces(weight, known, PIECES, WIDTH, PIECE, GROUPS)
        wait_for_previous(CHAINED)
        parts = load_squares(squares, s, inside, PARTS, PADDED_PARTS)
        found = held(weight, known, rows, scaled, s, inside, WIDTH, ROWS, COLUMNS, PIECE, GROUPS, PIECES)
    scale = inverse_norm(parts, WIDTH, EPS, SHRINK)
    let_next_start(CHAINED)
    at = logits + s[:, None] * TOKENS + n[None, :]
    mask = inside[:, None] & (n < TOKENS)[None, :]
    tl.store(at, found * scale + b[None, :], mask=mask)


def step_head(
    scaled: Scaled,
    weight: Tensor,
    bias: Tensor,
    epsilon: float,
    logits: Tensor,
    tile: StepTile,
    chained: int = NOT_CHAINED,
) -> None:
    """Write the logits.

    Args:
        weight, bias: ``[V, C]`` and float32 ``[V]``.
        logits: float32 ``[S, V]``, written.
    """
    batch, width = scaled.values.shape
    parts, tokens = scaled.squares.shape[1], logits.shape[1]
    _step_head[(cdiv(tokens, tile.rows), cdiv(batch, tile.columns))](
        scaled.values, scaled.squares, weight, bias, logits, batch,
        width, tokens, parts, next_power_of_2(parts), epsilon, SHRINK,
        tile.rows, tile.columns, tile.piece, tile.groups, tile.stages, chained,
        num_warps=tile.warps, launch_pdl=chained > 0,
    )  # fmt: skip
