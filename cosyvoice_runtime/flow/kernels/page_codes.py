"""Keys and values in 8 bits, as kernels write and read them: :mod:`cosyvoice_runtime.flow.torch.call_pages`.

A head of a frame is ``HEAD_DIM`` codes. The scales of a page and layer lie head by head, those of a head's
frames next to each other: a program that attends reads those of one head.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.torch.call_pages import LARGEST_CODE, PagePlaces

LARGEST = tl.constexpr(LARGEST_CODE)
VALUE_UNIT = tl.constexpr(128.0)
"""Values' scales are multiplied with it while values are mixed: a share of the attention times a scale would
often be too small for float16."""

AS_THEY_ARE, CODED, CODED_BY_BITS = 0, 1, 2
"""Values of a kernel's ``coding``: pages in the network's type; in 8 bits; the same, widened to float16 by
their bits, four numbers in seven instructions, which the interpreter can't."""


@triton.jit
def coded_rows(x):
    """Codes, still float32, and float16 scales of heads ``[N, D]``."""
    scales = (tl.max(tl.abs(x), axis=1) * (1.0 / LARGEST)).to(tl.float16)
    steps = scales.to(tl.float32)
    steps = tl.where(steps > 0, steps, 1.0)  # a head of zeros
    codes = tl.floor(x / steps[:, None] + 0.5)
    return tl.minimum(tl.maximum(codes, -LARGEST), LARGEST), scales


@triton.jit
def widened(codes, like, CODING: tl.constexpr):
    """Codes in the type of ``like``; what is not coded as it is."""
    if CODING == 2:
        # Under the byte 0x64 a byte is float16's 1024 and as much: with 128 added to codes, 1152 goes off.
        wide = tl.inline_asm_elementwise(
            """
            {
            .reg .b32 bytes, high, bias;
            mov.b32 high, 0x64646464;
            mov.b32 bias, 0x64806480;
            xor.b32 bytes, $2, 0x80808080;
            prmt.b32 $0, bytes, high, 0x4140;
            prmt.b32 $1, bytes, high, 0x4342;
            sub.f16x2 $0, $0, bias;
            sub.f16x2 $1, $1, bias;
            }
            """,
            "=&r,=&r,r",
            [codes],
            dtype=tl.float16,
            is_pure=True,
            pack=4,
        )
    elif CODING == 1:
        wide = codes.to(like.dtype)
    else:
        wide = codes
    return wide


@triton.jit
def load_scales(scales, place, seen, CODING: tl.constexpr):
    """float32 scales of frames; of pages that are not coded 1."""
    if CODING:
        of_frames = tl.load(scales + place, mask=seen, other=0.0).to(tl.float32)
    else:
        of_frames = tl.where(seen, 1.0, 1.0)
    return of_frames


@triton.jit
def store_coded(
    pages, scales, x, start, scale_start, inside, first,
    HEAD_DIM: tl.constexpr, PAGE: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Keys and values ``x [ROWS, COLUMNS]`` of whole heads, float32, into their frames.

    Args:
        start: int64 ``[ROWS]`` of each row's frame in the pages.
        scale_start: alike of the scale of the frame's first head.
        first: of the columns, of all heads of keys and then of values.
    """
    HEADS: tl.constexpr = COLUMNS // HEAD_DIM
    codes, of_heads = coded_rows(tl.reshape(x, [ROWS * HEADS, HEAD_DIM]))
    codes, of_heads = tl.reshape(codes, [ROWS, COLUMNS]), tl.reshape(of_heads, [ROWS, HEADS])
    n = first + tl.arange(0, COLUMNS)
    tl.store(pages + start[:, None] + n[None, :], codes.to(tl.int8), mask=inside[:, None])
    h = first // HEAD_DIM + tl.arange(0, HEADS)
    tl.store(scales + scale_start[:, None] + PAGE * h[None, :], of_heads, mask=inside[:, None])


def coding_of(places: PagePlaces) -> int:
    """A kernel's ``coding`` for these pages."""
    if places.scales is None:
        return AS_THEY_ARE
    return CODED if places.pages.device.type == "cpu" else CODED_BY_BITS


def scales_of(places: PagePlaces) -> Tensor:
    """The tensor that a kernel takes for scales: of pages that have none, any memory."""
    return places.pages if places.scales is None else places.scales


def whole_heads(columns: int, head_dim: int, coding: int) -> int:
    """Columns of a tile that writes keys and values: in 8 bits a head at least, for its scale."""
    return columns if coding == AS_THEY_ARE else max(columns, head_dim)
