"""Where each row of a right-padded batch ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cosyvoice_runtime.gpu.transfer import integers

Trim = Callable[[Tensor], Tensor]


class Rows:
    """Row lengths in mel frames.

    A convolution pads a single utterance with zeros; in a batch the same zeros must follow each row's
    own end, so what a layer writes there is cleared again. Batches of equal rows skip that work.

    Args:
        frames: [B] int64.
        width: mel frames of the batch.
        ragged: whether a row may be shorter.
    """

    def __init__(self, frames: Tensor, width: int, ragged: bool = True) -> None:
        self.width = width
        self.ragged = ragged
        self._frames = frames
        self._beyond: dict[tuple[int, int], Tensor] = {}

    @classmethod
    def of(cls, frames: Sequence[int], device: torch.device) -> Rows:
        """A batch as wide as its longest row."""
        width = max(frames)
        return cls(integers(frames, device), width, min(frames) < width)

    @property
    def device(self) -> torch.device:
        return self._frames.device

    def __len__(self) -> int:
        return len(self._frames)

    def lengths(self, per_frame: int = 1, extra: int = 0) -> Tensor:
        """Row lengths in steps of a signal with ``per_frame`` steps a frame: [B] int64."""
        return self._frames * per_frame + extra

    def trim(self, per_frame: int = 1, extra: int = 0) -> Trim:
        """A function that zeroes, in place, what lies beyond each row's end of a [B, C, steps] signal."""
        if not self.ragged:
            return _whole
        beyond = self._mask(per_frame, extra)
        return lambda signal: signal.masked_fill_(beyond, 0)

    def _mask(self, per_frame: int, extra: int) -> Tensor:
        key = per_frame, extra
        if key not in self._beyond:
            steps = torch.arange(self.width * per_frame + extra, device=self.device)
            self._beyond[key] = (steps >= self.lengths(per_frame, extra)[:, None])[:, None]
        return self._beyond[key]


def _whole(signal: Tensor) -> Tensor:
    return signal
