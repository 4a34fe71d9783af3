"""Keys, values and tails of blocks that are done, in numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config import FlowConfig
from cosyvoice_runtime.onnx_cpu.flow_estimator_graph import TAIL, tail_channels
from cosyvoice_runtime.wave.page_store import FIRST_PAGE, GUIDANCE_ROWS, PageStore

SIDES = 2
"""Keys and values."""


@dataclass(frozen=True)
class CpuTails:
    """Last input frames of every convolution of one utterance.

    Attributes:
        tokens, frames: ``[N]`` of the encoder's stacks.
        estimator: ``[steps, guidance rows, 2, N]``.
    """

    tokens: Floats
    frames: Floats
    estimator: Floats


class CpuPages(PageStore):
    """Pages of the three stacks of attention.

    Attributes:
        tokens, frames: ``[pages, 2, A, frames, H, D]`` of the encoder's stacks, keys before values.
        estimator: ``[pages, steps, guidance rows, 2A, H, frames, D]``, keys and values by turns.
    """

    def __init__(
        self, config: FlowConfig, num_steps: int, tail_sizes: tuple[int, int], num_pages: int
    ) -> None:
        super().__init__(num_pages)
        encoder, estimator = config.conformer, config.unet
        self.block, self.block_frames = encoder.chunk_tokens, config.frames_per_token * encoder.chunk_tokens
        heads = encoder.num_heads, encoder.head_dim
        attentions = SIDES * estimator.num_stages * estimator.blocks_per_stage
        self._shapes = (
            (SIDES, encoder.num_layers, self.block, *heads),
            (SIDES, encoder.num_up_layers, self.block_frames, *heads),
            (
                num_steps, GUIDANCE_ROWS, attentions,
                estimator.num_heads, self.block_frames, estimator.head_dim,
            ),
        )  # fmt: skip
        total = FIRST_PAGE + num_pages
        self.tokens, self.frames, self.estimator = (
            np.zeros((total, *shape), np.float32) for shape in self._shapes
        )
        tails = num_steps, GUIDANCE_ROWS, TAIL, sum(tail_channels(estimator))
        of_tokens, of_frames = (np.zeros(size, np.float32) for size in tail_sizes)
        self._empty = CpuTails(of_tokens, of_frames, np.zeros(tails, np.float32))

    @property
    def page_bytes(self) -> int:
        return int(sum(np.prod(shape) for shape in self._shapes)) * np.dtype(np.float32).itemsize

    def empty_tails(self) -> CpuTails:
        return self._empty

    def clear(self, page: int) -> None:
        for pages in (self.tokens, self.frames, self.estimator):
            pages[page] = 0


def stacked_past(pages: Floats, held: Sequence[Sequence[int]], before: int) -> list[Floats]:
    """Keys and values ``[A, B, S, H, D]`` of rows that look back on pages, right-aligned after zeros."""
    _, sides, attentions, frames, *heads = pages.shape
    past = np.zeros((sides, attentions, len(held), before * frames, *heads), np.float32)
    for row, numbers in enumerate(held):
        for place, page in enumerate(numbers, before - len(numbers)):
            past[:, :, row, place * frames : (place + 1) * frames] = pages[page]
    return list(past)
