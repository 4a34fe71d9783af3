"""Sizes that calls are captured in: whatever comes is computed as the next larger one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

HALVES_FROM = 8
"""Rows from which half a doubling is worth a size of its own: 9 to 12 take a quarter longer as 16."""


def bucket_for(buckets: Sequence[int], needed: int) -> int:
    """The smallest of ascending sizes that is large enough.

    Raises:
        IndexError: none is.
    """
    return buckets[bisect_left(buckets, needed)]


def batch_buckets(max_rows: int) -> list[int]:
    """1 and what doubling gives; the last one is ``max_rows``."""
    sizes = [2**power for power in range(max_rows.bit_length()) if 2**power < max_rows]
    return [*sizes, max_rows]


def finer_bucket(rows: int) -> int:
    """The next power of two, or three quarters of it if that is enough and more than ``HALVES_FROM``."""
    double = 1 << (rows - 1).bit_length()
    between = double * 3 // 4
    return between if rows <= between and between > HALVES_FROM else double


def finer_buckets(max_rows: int) -> list[int]:
    """Sizes of :func:`finer_bucket` up to ``max_rows``, which is the last one."""
    return sorted({min(finer_bucket(rows), max_rows) for rows in range(1, max_rows + 1)})
