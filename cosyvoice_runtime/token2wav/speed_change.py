"""Mel at another speed, while it arrives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.audio.audio import check_speed

SpeedMark = tuple[int, int, Any]
Places = npt.NDArray[np.int64]


class SpeedChange:
    """Linear interpolation of mel frames that may arrive in any number of parts.

    Output frame j is read at input position ``(j + 0.5) * speed - 0.5``. The published code stretches a
    whole utterance by the ratio of the rounded lengths instead, which is not known while it is spoken;
    the two never differ by more than one output frame (20 ms).

    Args:
        joined: mels one after the other, as arrays of the runtime.
        between: of a mel, frames left of the wanted ones, those right of them, and how far to go from the
            first to the second, float32 ``[n]``.

    Raises:
        InvalidInput: a speed outside 0.5 to 2.
    """

    def __init__(
        self,
        speed: float,
        joined: Callable[[list[Any]], Any],
        between: Callable[[Any, Places, Places, npt.NDArray[np.float32]], Any],
    ) -> None:
        check_speed(speed)
        self.speed = speed
        self._joined, self._between = joined, between
        self._received = 0
        self._emitted = 0
        self._kept: Any = None

    def mark(self) -> SpeedMark:
        """Where it is, for :meth:`rewind`."""
        return self._received, self._emitted, self._kept

    def rewind(self, mark: SpeedMark) -> None:
        """Be again where it was."""
        self._received, self._emitted, self._kept = mark

    def push(self, mel: Any, last: bool) -> Any:
        """The frames that mel ``[bins, T]`` makes possible; with ``last``, all that are left."""
        if self.speed == 1.0:
            return mel
        mel = mel if self._kept is None else self._joined([self._kept, mel])
        first = self._received - (0 if self._kept is None else self._kept.shape[1])
        self._received = first + mel.shape[1]
        positions = self._positions(last)
        below = np.floor(positions)
        left = np.maximum(below.astype(np.int64) - first, 0)
        right = np.minimum(left + 1, mel.shape[1] - 1)
        weight = (positions - below).astype(np.float32)
        stretched = self._between(mel, left, right, weight) if len(positions) else mel[:, :0]
        # The next frame may still need the last two.
        self._kept = mel[:, -2:]
        return stretched

    def _positions(self, last: bool) -> npt.NDArray[np.float64]:
        """Input positions of the output frames that can be computed now."""
        end = self._complete()
        if last:
            end = max(end, int(self._received / self.speed))
        frames = np.arange(self._emitted, max(end, self._emitted), dtype=np.float64)
        self._emitted = max(end, self._emitted)
        return ((frames + 0.5) * self.speed - 0.5).clip(0, max(self._received - 1, 0))

    def _complete(self) -> int:
        """Output frames whose right neighbour is here: position <= received - 1."""
        return max(math.floor((self._received - 0.5) / self.speed + 0.5), 0)
