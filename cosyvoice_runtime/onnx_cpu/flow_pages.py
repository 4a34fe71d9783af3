"""Keys, values and tails of blocks that are done, in numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from onnxruntime import InferenceSession

from cosyvoice_runtime.arrays import Floats, Halves
from cosyvoice_runtime.checkpoint.config import FlowConfig
from cosyvoice_runtime.free_pages import FIRST_PAGE
from cosyvoice_runtime.onnx_cpu.flow_estimator_graph import TAIL, tail_channels
from cosyvoice_runtime.wave.page_store import GUIDANCE_ROWS, PageStore

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


class PortSizes(NamedTuple):
    """What the graphs' ports tell.

    Attributes:
        token_tails, frame_tails: values of an utterance that the encoder's stacks keep.
        pages: float32 or float16, of keys and values that the estimator reads.
    """

    token_tails: int
    frame_tails: int
    pages: np.dtype[Any]

    @classmethod
    def of(cls, encoder: InferenceSession, estimator: InferenceSession) -> PortSizes:
        sizes = {port.name: port.shape[-1] for port in encoder.get_inputs()}
        types = {port.name: port.type for port in estimator.get_inputs()}
        pages = "float16" if types["keys.0"] == "tensor(float16)" else "float32"
        return cls(sizes["token_tails"], sizes["frame_tails"], np.dtype(pages))


class CpuPages(PageStore):
    """Pages of the three stacks of attention.

    Attributes:
        tokens, frames: ``[pages, 2, A, frames, H, D]`` of the encoder's stacks, keys before values.
        estimator: float32 or float16 ``[pages, steps, guidance rows, 2A, H, frames, D]``, keys and values by
            turns: all but a hundredth of the memory.
    """

    def __init__(self, config: FlowConfig, num_steps: int, ports: PortSizes, num_pages: int) -> None:
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
        self._types = np.dtype(np.float32), np.dtype(np.float32), ports.pages
        total = FIRST_PAGE + num_pages
        self.tokens: Floats
        self.frames: Floats
        self.estimator: Floats | Halves
        self.tokens, self.frames, self.estimator = (
            np.zeros((total, *shape), dtype) for shape, dtype in zip(self._shapes, self._types, strict=True)
        )
        tails = num_steps, GUIDANCE_ROWS, TAIL, sum(tail_channels(estimator))
        of_tokens, of_frames = (np.zeros(size, np.float32) for size in ports[:2])
        self._empty = CpuTails(of_tokens, of_frames, np.zeros(tails, np.float32))

    @property
    def page_bytes(self) -> int:
        pairs = zip(self._shapes, self._types, strict=True)
        return int(sum(np.prod(shape) * dtype.itemsize for shape, dtype in pairs))

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
