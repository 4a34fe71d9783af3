"""How pages keep the numbers of keys and values that attention reads, and weights whose numbers fit."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

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
    (:mod:`~cosyvoice_runtime.flow.onnx.page_codes`).
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


ATTENTION = re.compile(r"(.*)\.norm_attention\.weight")
IN_WHOLE_NUMBERS = 1.15
"""Products in 8 bits give more than the weights say: each operand is off by half a step, a 254th of its row's
largest, which of 256 channels is at most 16 / 254 of a product, twice."""


class PageScales(NamedTuple):
    """
    Attributes:
        weights: of the estimator, with keys and values of at most ``LARGEST``.
        keys: what attention's scores are to be multiplied with for it, by the layer.
    """

    weights: Mapping[str, Array]
    keys: Mapping[str, float]

    @classmethod
    def of(cls, weights: Mapping[str, Array]) -> PageScales:
        """Keys and values of each layer divided by powers of two, so that nothing else is rounded otherwise;
        the layer after attention multiplies the values again.

        Args:
            weights: of the estimator, by their names in it; those of attention read a layer norm.
        """
        scaled, scales = dict(weights), dict[str, float]()
        for name in (match[1] for match in map(ATTENTION.fullmatch, weights) if match):
            norm = [np.asarray(weights[f"{name}.norm_attention.{part}"]) for part in ("weight", "bias")]
            queries, keys, values = np.split(np.asarray(weights[f"{name}.qkv.weight"], np.float32), 3)
            of_keys, of_values = (scale(largest(part, *norm)) for part in (keys, values))
            scaled[f"{name}.qkv.weight"] = np.concatenate([queries, keys / of_keys, values / of_values])
            scaled[f"{name}.out.weight"] = np.asarray(weights[f"{name}.out.weight"]) * of_values
            scales[name] = float(of_keys)
        return cls(scaled, scales)


def scale(most: float) -> np.float32:
    """Power of two to divide numbers by that are no larger than ``most``."""
    return (
        np.float32(2.0 ** math.ceil(math.log2(IN_WHOLE_NUMBERS * most / LARGEST))) if most else np.float32(1)
    )


def largest(matrix: Array, weight: Array, bias: Array) -> float:
    """The largest magnitude that a product with what a layer norm gives can have.

    Before its own weights, a layer norm of C channels gives a vector of mean 0 and no longer than sqrt(C).

    Args:
        matrix: ``[out, C]``.
        weight, bias: of the norm, ``[C]``.
    """
    varied = np.asarray(matrix, np.float64) * weight
    varied -= varied.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(varied, axis=1) * math.sqrt(len(weight))
    return float((lengths + np.abs(np.asarray(matrix, np.float64) @ bias)).max())
