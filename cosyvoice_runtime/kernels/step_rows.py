"""Products of a few inputs with whole rows of a weight, inside kernels.

A program holds some rows of the weight before it may read what the kernel before wrote: reading weights takes
most of a step's time, and depends on nothing. A row's width is read in pieces, and a piece in groups, whose
products are added at the end: groups are what warps share.

S: sequences of a program; N: rows of a program; K: ``PIECE // GROUPS``.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_rows(weight, n, piece, WIDTH: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr):
    """One piece ``[GROUPS, K, N]`` of rows ``n`` of ``[*, WIDTH]``; zeros after their end."""
    SHARE: tl.constexpr = PIECE // GROUPS
    k = piece * PIECE + tl.arange(0, GROUPS)[:, None, None] * SHARE + tl.arange(0, SHARE)[None, :, None]
    return tl.load(weight + n[None, None, :] * WIDTH + k, mask=k < WIDTH, other=0.0)


@triton.jit
def load_pieces(
    weight, n, WIDTH: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr, PIECES: tl.constexpr
):
    """The first ``PIECES`` pieces of rows ``n``."""
    rows = ()
    for piece in tl.static_range(PIECES):
        rows += (load_rows(weight, n, piece, WIDTH, PIECE, GROUPS),)  # type: ignore[assignment]
    return rows


@triton.jit
def load_inputs(inputs, s, inside, piece, WIDTH: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr):
    """One piece ``[GROUPS, S, K]`` of the inputs ``[*, WIDTH]`` of sequences ``s``."""
    SHARE: tl.constexpr = PIECE // GROUPS
    k = piece * PIECE + tl.arange(0, GROUPS)[:, None, None] * SHARE + tl.arange(0, SHARE)[None, None, :]
    at = inputs + s[None, :, None] * WIDTH + k
    return tl.load(at, mask=(k < WIDTH) & inside[None, :, None], other=0.0)


@triton.jit
def no_sums(COLUMNS: tl.constexpr, ROWS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr):
    """Zeros to which `product` adds."""
    DEPTH: tl.constexpr = COLUMNS if COLUMNS > 1 else PIECE // GROUPS
    return tl.zeros([GROUPS, DEPTH, ROWS], tl.float32)


@triton.jit
def product(inputs, rows, sums, COLUMNS: tl.constexpr):
    """Add the products of inputs ``[GROUPS, S, K]`` and rows ``[GROUPS, K, N]``.

    The sums are ``[GROUPS, S, N]``; of one sequence ``[GROUPS, K, N]``, to be added up later.
    """
    if COLUMNS == 1:
        sums += tl.permute(inputs, (0, 2, 1)).to(tl.float32) * rows.to(tl.float32)
    else:
        sums = tl.dot(inputs.to(rows.dtype), rows, sums, input_precision="ieee")
    return sums


@triton.jit
def added_up(sums, COLUMNS: tl.constexpr):
    """float32 ``[S, N]`` of all groups."""
    return tl.sum(tl.sum(sums, axis=1), axis=0)[None, :] if COLUMNS == 1 else tl.sum(sums, axis=0)


@triton.jit
def inverse_norm(
    squares, s, inside,
    WIDTH: tl.constexpr, PARTS: tl.constexpr, PADDED_PARTS: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """What RMSNorm multiplies sequences ``s`` by, ``[S]``: from parts of their sum of squares."""
    part = tl.arange(0, PADDED_PARTS)
    at = squares + s[:, None] * PARTS + part[None, :]
    sums = tl.load(at, mask=inside[:, None] & (part < PARTS)[None, :], other=0.0)
    return tl.rsqrt(tl.sum(sums, axis=1) / WIDTH + EPS)
