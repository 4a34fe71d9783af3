"""Keys, values and tails of blocks that are done, in numpy arrays, and the formats of their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.page_store import FIRST_PAGE, PageStore
from cosyvoice_runtime.onnx.memory import ReturnedMemory
from cosyvoice_runtime.onnx.session import NamedSession

SIDES = 2
"""Keys and values."""
NO_STACK = (0, "batch", "past", 1, 1)
"""Shape of the keys of a stack that a graph does not have."""
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
BITS = np.int16((KEPT << DROPPED) - (1 << 15))
"""The bits of float16 that pages keep: the sign and those that ``LARGEST`` has."""


class PageCode:
    """How keys and values go from the memory that attention reads to pages, and back: here as they are.

    Attributes:
        pages: type of pages.
        room: type of that memory.
        by_block: a call's blocks are computed one after the other, so that each sees the ones before it as
            pages keep them, wherever an utterance is cut, and itself as it is.
    """

    by_block = False

    def __init__(self, pages: str, room: str) -> None:
        self.pages, self.room = np.dtype(pages), np.dtype(room)

    def read(self, page: Array, room: Array) -> None:
        """Write into ``room`` what ``page``, of the same shape, keeps."""
        room[:] = page

    def write(self, room: Array, page: Array) -> None:
        """Keep in ``page`` what attention has left in ``room``."""
        page[:] = room


class InEightBits(PageCode):
    """A sign, three bits of an exponent and four of a fraction, of numbers of float16 up to ``LARGEST``.

    They are bits of float16's own, so that to read them is to shift and to clear bits, without a product or a
    table: numpy is slow with float16. The estimator's weights see to it that no number is larger
    (:class:`~cosyvoice_runtime.flow.onnx.estimator_graph.PageScales`).
    """

    by_block = True

    def __init__(self) -> None:
        super().__init__("int8", "float16")

    def read(self, page: Array, room: Array) -> None:
        # A layer at a time, which stays in the cache from one operation to the next; here and below.
        for kept, bits in zip(page, room.view(np.int16), strict=True):
            shifted = np.multiply(kept, np.int16(1 << DROPPED), dtype=np.int16)
            np.bitwise_and(shifted, BITS, out=bits)

    def write(self, room: Array, page: Array) -> None:
        for bits, kept in zip(room.view(np.uint16), page.view(np.uint8), strict=True):
            rounded = bits + np.uint16(1 << DROPPED >> 1)
            rounded >>= np.uint16(DROPPED)
            sign = bits >> np.uint16(8)
            sign &= np.uint16(SIGN)
            rounded |= sign
            kept[:] = rounded  # its last 8 bits: those before are 0, or the sign once more


def page_code(page_format: str) -> PageCode:
    """The code of a format of pages, ``float32``, ``float16`` or ``float8``."""
    return InEightBits() if page_format == EIGHT_BITS else PageCode(page_format, page_format)


class PastSizes(NamedTuple):
    """Sizes of the pasts of a flow's graphs, read from their inputs.

    Attributes:
        tokens, frames: layers of attention, heads and their size in each of the encoder's stacks.
        token_tail, frame_tail: sizes of these stacks' tails.
        estimator_tail: frames and channels of the estimator's tails.
        code: how pages keep the estimator's keys and values.
    """

    tokens: tuple[int, int, int]
    frames: tuple[int, int, int]
    token_tail: int
    frame_tail: int
    estimator_tail: tuple[int, int]
    code: PageCode

    @classmethod
    def of(cls, encoder: NamedSession, estimator: NamedSession) -> PastSizes:
        shapes: Mapping[str, Any] = encoder.shapes
        tail: Any = estimator.shapes["tails"]

        def stack(name: str) -> tuple[int, int, int]:
            attentions, _, _, heads, size = shapes.get(name, NO_STACK)
            return attentions, heads, size

        return cls(
            stack("token_keys"),
            stack("frame_keys"),
            shapes["token_tails"][-1],
            shapes["frame_tails"][-1] if "frame_tails" in shapes else 0,
            (tail[1], tail[2]),
            page_code(estimator.properties[PAGE_FORMAT]),
        )


@dataclass(frozen=True)
class CpuTails:
    """Last input frames of every convolution of one utterance.

    Attributes:
        tokens, frames: ``[N]`` of the encoder's stacks.
        estimator: ``[steps, guidance rows, frames, N]``.
    """

    tokens: Floats
    frames: Floats
    estimator: Floats


class CpuPages(PageStore):
    """Pages of the three stacks of attention.

    Attributes:
        tokens, frames: ``[pages, 2, A, frames, H, D]`` of the encoder's stacks, keys before values.
        estimator: ``[pages, steps, guidance rows, 2A, H, frames, D]`` in the type of ``code``, keys and
            values alternating: all but a hundredth of the memory.
        code: how it is written and read.
    """

    def __init__(self, config: FlowConfig, num_steps: int, sizes: PastSizes, num_pages: int) -> None:
        super().__init__(num_pages)
        estimator, block, rows = config.blockwise, config.encoder.chunk_tokens, config.guidance_rows
        self.block, self.block_frames = block, config.frames_per_token * block
        of_tokens, of_frames = (
            (SIDES, attentions, frames, *heads)
            for (attentions, *heads), frames in (
                (sizes.tokens, self.block),
                (sizes.frames, self.block_frames),
            )
        )
        heads = estimator.num_heads, self.block_frames, estimator.head_dim
        of_steps = (num_steps, rows, SIDES * estimator.attentions, *heads)
        self._shapes: tuple[tuple[int, ...], ...] = (of_tokens, of_frames, of_steps)
        self._types = np.dtype(np.float32), np.dtype(np.float32), sizes.code.pages
        total = FIRST_PAGE + num_pages
        self.tokens: Floats
        self.frames: Floats
        self.estimator: Array
        self.code = sizes.code
        self._memory = [
            ReturnedMemory((total, *shape), dtype, in_one=True)
            for shape, dtype in zip(self._shapes, self._types, strict=True)
        ]
        self.tokens, self.frames, self.estimator = (memory.array for memory in self._memory)
        tails = num_steps, rows, *sizes.estimator_tail
        shapes = sizes.token_tail, sizes.frame_tail, tails
        self._empty = CpuTails(*(np.zeros(shape, np.float32) for shape in shapes))

    @property
    def page_bytes(self) -> int:
        pairs = zip(self._shapes, self._types, strict=True)
        return int(sum(np.prod(shape) * dtype.itemsize for shape, dtype in pairs))

    def empty_tails(self) -> CpuTails:
        return self._empty

    def give_back_free(self) -> None:
        """Give the memory of free pages back; kept, it is the next utterance's without a fault.

        Others may take and read pages meanwhile; a thread that takes one waits for one at most.
        """
        for page in range(FIRST_PAGE, len(self._holders)):
            if not self._holders[page]:
                self._give_back(page)

    def _give_back(self, page: int) -> None:
        with self._lock:
            if not self._holders[page]:  # still
                for memory in self._memory:
                    memory.give_back(page)

    def clear(self, page: int) -> None:
        for pages in (self.tokens, self.frames, self.estimator):
            pages[page] = 0


def stacked_past(pages: Floats, held: Sequence[int]) -> list[Floats]:
    """Keys and values ``[A, 1, S, H, D]`` of an utterance that looks back on pages."""
    _, sides, attentions, frames, *heads = pages.shape
    past = np.empty((sides, attentions, 1, len(held) * frames, *heads), np.float32)
    for place, page in enumerate(held):
        past[:, :, 0, place * frames : (place + 1) * frames] = pages[page]
    return list(past)
