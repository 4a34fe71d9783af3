"""Waves of several windows on their way to the host in one copy, cut and joined by numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.gpu.transfer import Fetch

Samples = npt.NDArray[np.float32]


class HeardWindows:
    """Waves of a call, sent to the host at once.

    Args:
        waves: float32 ``[B, samples]`` on the device, until the next call.
    """

    def __init__(self, waves: Tensor) -> None:
        self._fetch = Fetch(waves)
        self._arrays: Samples | None = None

    def arrays(self) -> Samples:
        """``[B, samples]`` of the host, once they are there."""
        if self._arrays is None:
            self._arrays = self._fetch.array()
        return self._arrays


class HeardWave(Protocol):
    """Samples of one utterance, which may still be on their way."""

    def __len__(self) -> int: ...

    def array(self) -> Samples:
        """``[n]``, once they are there."""


@dataclass(frozen=True, eq=False)
class WaveCut:
    """Samples of one window."""

    windows: HeardWindows
    row: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, place: slice) -> WaveCut:
        start, stop, step = place.indices(len(self))
        assert step == 1
        return replace(self, start=self.start + start, stop=self.start + max(start, stop))

    @property
    def nbytes(self) -> int:
        return np.dtype(np.float32).itemsize * len(self)

    def array(self) -> Samples:
        return self.windows.arrays()[self.row, self.start : self.stop]


@dataclass(frozen=True, eq=False)
class JoinedWave:
    """Samples one after the other."""

    parts: Sequence[HeardWave]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def array(self) -> Samples:
        return np.concatenate([np.zeros(0, np.float32), *(part.array() for part in self.parts)])


@dataclass(frozen=True, eq=False)
class BlendedWave:
    """On the way from the first samples to the second by ``weight``."""

    first: HeardWave
    second: HeardWave
    weight: Samples

    def __len__(self) -> int:
        return len(self.weight)

    def array(self) -> Samples:
        first, second, weight = map(torch.from_numpy, (self.first.array(), self.second.array(), self.weight))
        return first.lerp(second, weight).numpy()
