"""Speaking rate: the mel, resampled in time between flow and vocoder."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cosyvoice_runtime.vocoder.speed import check_speed

SpeedMark = tuple[int, int, Tensor | None]


class SpeedChange:
    """Linear interpolation of mel frames that may arrive in any number of parts.

    Output frame j is read at input position ``(j + 0.5) * speed - 0.5``. The published code stretches a
    whole utterance by the ratio of the rounded lengths instead, which is not known while it is spoken;
    the two never differ by more than one output frame (20 ms).

    Raises:
        InvalidInput: a speed outside 0.5 to 2.
    """

    def __init__(self, speed: float) -> None:
        check_speed(speed)
        self.speed = speed
        self._received = 0
        self._emitted = 0
        self._kept: Tensor | None = None

    def mark(self) -> SpeedMark:
        """Where it is, for :meth:`rewind`."""
        return self._received, self._emitted, self._kept

    def rewind(self, mark: SpeedMark) -> None:
        """Be again where it was."""
        self._received, self._emitted, self._kept = mark

    def push(self, mel: Tensor, last: bool) -> Tensor:
        """The frames that mel ``[bins, T]`` makes possible; with ``last``, all that are left."""
        if self.speed == 1.0:
            return mel
        mel = mel if self._kept is None else torch.cat([self._kept, mel], dim=1)
        first = self._received - (0 if self._kept is None else self._kept.shape[1])
        self._received = first + mel.shape[1]
        positions = self._positions(last, mel.device)
        below = positions.floor()
        weight = (positions - below).to(mel.dtype)
        left = (below.long() - first).clamp(min=0)
        right = (left + 1).clamp(max=mel.shape[1] - 1)
        stretched = mel[:, left].lerp(mel[:, right], weight) if len(positions) else mel[:, :0]
        # The next frame may still need the last two.
        self._kept = mel[:, -2:]
        return stretched

    def _positions(self, last: bool, device: torch.device) -> Tensor:
        """Input positions of the output frames that can be computed now: float64 ``[n]``."""
        end = self._complete()
        if last:
            end = max(end, int(self._received / self.speed))
        frames = torch.arange(self._emitted, max(end, self._emitted), dtype=torch.float64, device=device)
        self._emitted = max(end, self._emitted)
        return ((frames + 0.5) * self.speed - 0.5).clamp(min=0, max=max(self._received - 1, 0))

    def _complete(self) -> int:
        """Output frames whose right neighbour is here: position <= received - 1."""
        return max(math.floor((self._received - 0.5) / self.speed + 0.5), 0)
