"""Products of a few inputs with whole rows of a weight, inside kernels.

Held: a program loads rows of the weight into registers before the kernel before it has ended, because reading
weights takes most of a step's time and depends on nothing. A row's width is read in pieces, and a piece in
groups, which warps share and whose products are added at the end. Fewer sequences than `TENSOR_CORES_FROM`, a
power of two, are multiplied one after another, so each gets the bits that it gets alone with as many groups
and pieces: tensor cores take as long for one sequence as for so many.

Streamed: pieces of the weight and of the inputs pass through shared memory, some of them ahead of the tensor
cores. A program takes more rows for all sequences at once, so that fewer programs read the inputs again,
which counts where sequences are many or multiprocessors few.

S: sequences of a program; N: rows of a program; K: ``PIECE // GROUPS``.
"""

from __future__ import annotations

import triton
import triton.language as tl

TENSOR_CORES_FROM = tl.constexpr(16)
"""Fewest sequences of a program that tensor cores multiply."""


@triton.jit
def load_rows(weight, n, piece, WIDTH: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr):
    """One piece ``[GROUPS, K, N]`` of rows ``n`` of ``[*, WIDTH]``; zeros after their end."""
    SHARE: tl.constexpr = PIECE // GROUPS
    k = piece * PIECE + tl.arange(0, GROUPS)[:, None, None] * SHARE + tl.arange(0, SHARE)[None, :, None]
    return tl.load(weight + n[None, None, :] * WIDTH + k, mask=k < WIDTH, other=0.0)


@triton.jit
def load_pieces(
    weight, n, PIECES: tl.constexpr, WIDTH: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr
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
        sums = tl.dot(inputs, rows, sums, input_precision="ieee")
    return sums


@triton.jit
def added_up(sums, COLUMNS: tl.constexpr):
    """float32 ``[S, N]`` of all groups."""
    return tl.sum(tl.sum(sums, axis=1), axis=0)[None, :] if COLUMNS == 1 else tl.sum(sums, axis=0)


@triton.jit
def one_of(s, inside, column: tl.constexpr, COLUMNS: tl.constexpr):
    """One ``[1]`` of the sequences ``s``, and whether it exists."""
    here = tl.arange(0, COLUMNS) == column
    first = tl.arange(0, 1)
    one, there = tl.sum(tl.where(here, s, 0), axis=0), tl.sum(tl.where(here & inside, 1, 0), axis=0)
    return first + one, first + there > 0


@triton.jit
def with_row(whole, row, column: tl.constexpr, COLUMNS: tl.constexpr):
    """``[S, N]`` with another row, ``[1, N]``."""
    return tl.where((tl.arange(0, COLUMNS) == column)[:, None], row, whole)


@triton.jit
def held(
    weight, n, rows, inputs, s, inside,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PIECE: tl.constexpr, GROUPS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Products ``[S, N]`` of inputs of sequences ``s`` and rows ``n`` of the weight.

    ``AHEAD`` pieces of the weight are in ``rows``; the others are loaded during the products.
    """
    if COLUMNS == 1 or COLUMNS >= TENSOR_CORES_FROM:
        found = _held(weight, n, rows, inputs, s, inside, WIDTH, ROWS, COLUMNS, PIECE, GROUPS, AHEAD)
    else:
        found = tl.zeros([COLUMNS, ROWS], tl.float32)
        for column in tl.static_range(COLUMNS):
            one, there = one_of(s, inside, column, COLUMNS)
            row = _held(weight, n, rows, inputs, one, there, WIDTH, ROWS, 1, PIECE, GROUPS, AHEAD)
            found = with_row(found, row, column, COLUMNS)
    return found


@triton.jit
def _held(
    weight, n, rows, inputs, s, inside,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PIECE: tl.constexpr, GROUPS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Products of one sequence, or of `TENSOR_CORES_FROM` and more."""
    PIECES: tl.constexpr = (WIDTH + PIECE - 1) // PIECE
    a = load_inputs(inputs, s, inside, 0, WIDTH, PIECE, GROUPS)
    sums = no_sums(COLUMNS, ROWS, PIECE, GROUPS)
    for piece in tl.static_range(PIECES):
        if piece + AHEAD < PIECES:
            rows += (load_rows(weight, n, piece + AHEAD, WIDTH, PIECE, GROUPS),)
        following = a
        if piece + 1 < PIECES:  # The next inputs are on their way while these are used.
            following = load_inputs(inputs, s, inside, piece + 1, WIDTH, PIECE, GROUPS)
        sums = product(a, rows[piece], sums, COLUMNS)
        a = following
    return added_up(sums, COLUMNS)


@triton.jit
def held_pair(
    first, second, inputs, s, inside,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Products ``[S, N]`` with all pieces of two times as many rows; the inputs are read once."""
    if COLUMNS == 1 or COLUMNS >= TENSOR_CORES_FROM:
        left, right = _held_pair(first, second, inputs, s, inside, WIDTH, ROWS, COLUMNS, PIECE, GROUPS)
    else:
        left = tl.zeros([COLUMNS, ROWS], tl.float32)
        right = tl.zeros([COLUMNS, ROWS], tl.float32)
        for column in tl.static_range(COLUMNS):
            one, there = one_of(s, inside, column, COLUMNS)
            x, y = _held_pair(first, second, inputs, one, there, WIDTH, ROWS, 1, PIECE, GROUPS)
            left = with_row(left, x, column, COLUMNS)
            right = with_row(right, y, column, COLUMNS)
    return left, right


@triton.jit
def _held_pair(
    first, second, inputs, s, inside,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Products of one sequence, or of `TENSOR_CORES_FROM` and more."""
    PIECES: tl.constexpr = (WIDTH + PIECE - 1) // PIECE
    a = load_inputs(inputs, s, inside, 0, WIDTH, PIECE, GROUPS)
    left = no_sums(COLUMNS, ROWS, PIECE, GROUPS)
    right = no_sums(COLUMNS, ROWS, PIECE, GROUPS)
    for piece in tl.static_range(PIECES):
        following = a
        if piece + 1 < PIECES:  # The next inputs are on their way, as in `_held`.
            following = load_inputs(inputs, s, inside, piece + 1, WIDTH, PIECE, GROUPS)
        left = product(a, first[piece], left, COLUMNS)
        right = product(a, second[piece], right, COLUMNS)
        a = following
    return added_up(left, COLUMNS), added_up(right, COLUMNS)


@triton.jit
def load_whole_piece(start, rows, PIECE: tl.constexpr, WIDTH: tl.constexpr):
    """``[N, PIECE]`` of rows that begin at the pointers ``rows [N]``; zeros after their end."""
    k = start + tl.arange(0, PIECE)
    if WIDTH % PIECE == 0:
        return tl.load(rows[:, None] + k[None, :])
    return tl.load(rows[:, None] + k[None, :], mask=(k < WIDTH)[None, :], other=0.0)


@triton.jit
def streamed(
    weight, n, inputs, s, batch,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Products ``[S, N]`` of inputs of sequences ``s`` and rows ``n`` of the weight, both complete in
    memory."""
    s = tl.minimum(s, batch - 1)  # Sequences beyond the last repeat it, so that loads need no mask.
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in tl.range(0, WIDTH, PIECE, num_stages=STAGES):
        rows = load_whole_piece(start, weight + n * WIDTH, PIECE, WIDTH)
        a = load_whole_piece(start, inputs + s * WIDTH, PIECE, WIDTH)
        sums = tl.dot(rows, tl.trans(a), sums, input_precision="ieee")
    return tl.trans(sums)


@triton.jit
def streamed_pair(
    weight, n, m, inputs, s, batch,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Products as of :func:`streamed`, of rows ``n`` and of rows ``m``; the inputs are read once."""
    s = tl.minimum(s, batch - 1)
    left = tl.zeros([ROWS, COLUMNS], tl.float32)
    right = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in tl.range(0, WIDTH, PIECE, num_stages=STAGES):
        first = load_whole_piece(start, weight + n * WIDTH, PIECE, WIDTH)
        second = load_whole_piece(start, weight + m * WIDTH, PIECE, WIDTH)
        a = tl.trans(load_whole_piece(start, inputs + s * WIDTH, PIECE, WIDTH))
        left = tl.dot(first, a, left, input_precision="ieee")
        right = tl.dot(second, a, right, input_precision="ieee")
    return tl.trans(left), tl.trans(right)


@triton.jit
def load_squares(squares, s, inside, PARTS: tl.constexpr, PADDED_PARTS: tl.constexpr):
    """Parts of the sum of squares of sequences ``s``, ``[S, PADDED_PARTS]``."""
    part = tl.arange(0, PADDED_PARTS)
    at = squares + s[:, None] * PARTS + part[None, :]
    return tl.load(at, mask=inside[:, None] & (part < PARTS)[None, :], other=0.0)


@triton.jit
def inverse_norm(parts, WIDTH: tl.constexpr, EPS: tl.constexpr, SHRINK: tl.constexpr):
    """Factor of RMSNorm, ``[S, 1]``, of inputs ``SHRINK`` times their size."""
    return tl.rsqrt(tl.sum(parts, axis=1) / WIDTH + EPS)[:, None] / SHRINK


@triton.jit
def load_added(added, s, n, inside, WIDTH: tl.constexpr):
    """The adapters' share ``[S, N]`` of the products, of ``[*, WIDTH]``."""
    return tl.load(added + s[:, None] * WIDTH + n[None, :], mask=inside[:, None], other=0.0)
