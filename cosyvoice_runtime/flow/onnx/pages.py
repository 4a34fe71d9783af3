"""Keys, values and tails of blocks that are done, in numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.onnx.page_codes import PAGE_FORMAT, PageCode, page_code
from cosyvoice_runtime.flow.page_store import FIRST_PAGE, GUIDANCE_ROWS, PageStore
from cosyvoice_runtime.onnx.memory import ReturnedMemory
from cosyvoice_runtime.onnx.session import NamedSession

SIDES = 2
"""Keys and values."""
NO_STACK = (0, "batch", "past", 1, 1)
"""Shape of the keys of a stack that a graph does not have."""


class PastSizes(NamedTuple):
    """What the graphs of a flow look back on, read from their inputs.

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
            values by turns: all but a hundredth of the memory.
        code: how it is written and read.
    """

    def __init__(self, config: FlowConfig, num_steps: int, sizes: PastSizes, num_pages: int) -> None:
        super().__init__(num_pages)
        estimator, block = config.blockwise, config.encoder.chunk_tokens
        self.block, self.block_frames = block, config.frames_per_token * block
        of_tokens, of_frames = (
            (SIDES, attentions, frames, *heads)
            for (attentions, *heads), frames in (
                (sizes.tokens, self.block),
                (sizes.frames, self.block_frames),
            )
        )
        heads = estimator.num_heads, self.block_frames, estimator.head_dim
        of_steps = (num_steps, GUIDANCE_ROWS, SIDES * estimator.attentions, *heads)
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
        tails = num_steps, GUIDANCE_ROWS, *sizes.estimator_tail
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

        Others may take and read pages meanwhile; whoever takes one waits for one at most.
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
