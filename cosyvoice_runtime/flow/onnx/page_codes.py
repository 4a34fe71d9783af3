"""How pages keep the numbers of keys and values that attention reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from cosyvoice_runtime.arrays import Array

PAGE_FORMAT = "page_format"
"""Property of an estimator's graph."""
EIGHT_BITS = "float8"
DROPPED = 6
"""Last bits of float16's fraction of 10 that have no place in 8 bits: 4 are left, and 3 of the exponent."""
KEPT = 0x7F
SIGN = 0x80
LARGEST = float(np.array(KEPT << DROPPED, np.uint16).view(np.float16))
"""In 8 bits, 0.0076; numbers down to a 64th of it have all 4 bits of the fraction, the step of those below
is a 2,000th of it."""
PLACES = np.int16((KEPT << DROPPED) - (1 << 15))
"""Of the bits in float16: the sign and what ``LARGEST`` has."""


class PageCode(ABC):
    """From the memory that attention reads to pages, and back.

    Attributes:
        pages: type of pages.
        room: type of that memory.
        by_block: a call's blocks are computed one after the other, so that each sees the ones before it as
            pages keep them, wherever an utterance is cut, and itself as it is.
    """

    pages: np.dtype[Any]
    room: np.dtype[Any]
    by_block: bool

    @abstractmethod
    def read(self, page: Array, room: Array) -> None:
        """Write into ``room`` what ``page``, of the same shape, keeps."""

    @abstractmethod
    def write(self, room: Array, page: Array) -> None:
        """Keep in ``page`` what attention has left in ``room``."""


class AsTheyAre(PageCode):
    """Pages in attention's own type."""

    by_block = False

    def __init__(self, name: str) -> None:
        self.pages = self.room = np.dtype(name)

    def read(self, page: Array, room: Array) -> None:
        room[:] = page

    def write(self, room: Array, page: Array) -> None:
        page[:] = room


class InEightBits(PageCode):
    """A sign, three bits of an exponent and four of a fraction, of numbers of float16 up to ``LARGEST``.

    They are bits of float16's own, so that to read them is to shift and to clear bits, without a product or a
    table: numpy is slow with float16. The estimator's weights see to it that no number is larger
    (:mod:`~cosyvoice_runtime.flow.onnx.page_scales_graph`).
    """

    pages = np.dtype(np.int8)
    room = np.dtype(np.float16)
    by_block = True

    def read(self, page: Array, room: Array) -> None:
        # A layer at a time, which stays in the cache from one operation to the next; here and below.
        for kept, bits in zip(page, room.view(np.int16), strict=True):
            shifted = np.multiply(kept, np.int16(1 << DROPPED), dtype=np.int16)
            np.bitwise_and(shifted, PLACES, out=bits)

    def write(self, room: Array, page: Array) -> None:
        for bits, kept in zip(room.view(np.uint16), page.view(np.uint8), strict=True):
            rounded = bits + np.uint16(1 << DROPPED >> 1)
            rounded >>= np.uint16(DROPPED)
            sign = bits >> np.uint16(8)
            sign &= np.uint16(SIGN)
            rounded |= sign
            kept[:] = rounded  # its last 8 bits: those before are 0, or the sign once more


def page_code(page_format: str) -> PageCode:
    """Of a format of pages, ``float32``, ``float16`` or ``float8``."""
    return InEightBits() if page_format == EIGHT_BITS else AsTheyAre(page_format)
