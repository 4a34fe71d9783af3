"""Blocks of a call that the flow's estimator computes at once, in memory of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.flow.page_store import GUIDANCE_ROWS

if TYPE_CHECKING:
    from cosyvoice_runtime.flow.onnx.call import FlowCall

HIDDEN_SCORE = -30000.0
"""Added to the score of a key that a query must not see."""
Block = tuple[int, int, int]
Ports = tuple[Mapping[str, Array], Mapping[str, Array]]


class CallPart:
    """
    Args:
        blocks: page, first frame in the call and frames of each.
        before: frames before the call.
        conditions: of the call's frames.
        shared: inputs and outputs that are not this part's alone.

    Attributes:
        velocity: ``[R, frames, mel]``, after a run.
    """

    def __init__(
        self, call: FlowCall, blocks: Sequence[Block], before: int, conditions: Floats, shared: Ports
    ) -> None:
        self.blocks = blocks
        start, (_, last, count) = blocks[0][1], blocks[-1]
        self._own = slice(start, last + count)
        total = before + last + count
        self._x = np.empty((GUIDANCE_ROWS, last + count - start, call.flow.config.mel_bins), np.float32)
        self.velocity = np.empty_like(self._x)
        shown = call.visible(call.pool.block_frames)[:, :, self._own, :total]
        inputs: dict[str, Array] = {
            "x": self._x,
            "conditions": np.ascontiguousarray(conditions[:, self._own]),
            "bias": np.where(shown, 0, HIDDEN_SCORE).astype(call.pool.code.room),
            "last": np.array([total - 1], np.int32),
            "total": np.array([total], np.int32),
            "starts": np.full(GUIDANCE_ROWS, before + start, np.int64),
        }
        read, written = shared
        self._bound = call.flow.estimator.bound({**inputs, **read}, {"velocity": self.velocity, **written})

    def run(self, mel: Floats) -> None:
        """From the call's mel ``[frames, mel]`` so far."""
        self._x[:] = mel[self._own]
        self._bound.run()


def joined(velocities: Sequence[Floats]) -> Floats:
    """Of a call's parts."""
    return velocities[0] if len(velocities) == 1 else np.concatenate(velocities, axis=1)
