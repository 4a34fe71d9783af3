"""The batch sizes of captured calls: each call is padded to the next larger size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

HALVES_FROM = 8
"""The rows above which sizes between powers of two are worth a capture: 9 to 12 rows take a quarter longer as
16."""


def bucket_for(buckets: Sequence[int], needed: int) -> int:
    """The smallest of ascending sizes that is large enough; an IndexError if all are smaller."""
    return buckets[bisect_left(buckets, needed)]


def batch_buckets(max_rows: int) -> list[int]:
    """The powers of two below ``max_rows``, and ``max_rows``."""
    sizes = [2**power for power in range(max_rows.bit_length()) if 2**power < max_rows]
    return [*sizes, max_rows]


def finer_bucket(rows: int) -> int:
    """The next power of two, or three quarters of it where that is enough and exceeds ``HALVES_FROM``."""
    double = 1 << (rows - 1).bit_length()
    between = double * 3 // 4
    return between if rows <= between and between > HALVES_FROM else double


def finer_buckets(max_rows: int) -> list[int]:
    """The sizes of :func:`finer_bucket` up to ``max_rows``, which is the last one."""
    return sorted({min(finer_bucket(rows), max_rows) for rows in range(1, max_rows + 1)})
