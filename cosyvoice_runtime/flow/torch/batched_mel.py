"""Mels of several utterances in one tensor, cut and handed on by numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.gpu.transfer import moved


@dataclass(frozen=True, eq=False)
class MelCut:
    """Frames of one utterance, ``[mel, T]``: an array that costs no operation of torch to cut.

    Attributes:
        batch: ``[B, frames, mel]``, never overwritten.
        row: of the utterance.
        start, stop: of its frames.
    """

    batch: Tensor
    row: int
    start: int
    stop: int

    @classmethod
    def row_of(cls, batch: Tensor, row: int) -> MelCut:
        """All frames of a row."""
        return cls(batch, row, 0, batch.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        return self.batch.shape[2], self.stop - self.start

    @property
    def nbytes(self) -> int:
        bins, frames = self.shape
        return bins * frames * self.batch.element_size()

    def __getitem__(self, place: tuple[slice, slice]) -> MelCut:
        """``[:, start:stop]``."""
        start, stop, step = place[1].indices(self.shape[1])
        assert place[0] == slice(None)
        assert step == 1
        return replace(self, start=self.start + start, stop=self.start + max(start, stop))

    def frames(self) -> Tensor:
        """``[T, mel]``."""
        return self.batch[self.row, self.start : self.stop]

    def tensor(self) -> Tensor:
        return self.frames().T


@dataclass(frozen=True, eq=False)
class JoinedMel:
    """Two cuts, one after the other."""

    first: MelCut
    second: MelCut

    @property
    def shape(self) -> tuple[int, int]:
        bins, frames = self.first.shape
        return bins, frames + self.second.shape[1]

    @property
    def nbytes(self) -> int:
        return self.first.nbytes + self.second.nbytes

    def __getitem__(self, place: tuple[slice, slice]) -> MelCut | JoinedMel:
        """``[:, start:stop]``."""
        start, stop, _ = place[1].indices(self.shape[1])
        edge = self.first.shape[1]
        if stop <= edge:
            return self.first[:, start:stop]
        second = self.second[:, max(start - edge, 0) : stop - edge]
        return second if start >= edge else JoinedMel(self.first[:, start:], second)

    def tensor(self) -> Tensor:
        return torch.cat([self.first.tensor(), self.second.tensor()], dim=1)


StoredMel = Tensor | MelCut | JoinedMel


@dataclass(frozen=True, eq=False)
class StretchedMel:
    """Frames between those of a mel.

    Attributes:
        left, right: int64 ``[n]``, frames of the mel around each.
        weight: float32 ``[n]``, how far to go from the left one to the right one.
    """

    mel: StoredMel
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        return self.mel.shape[0], len(self.weight)

    @property
    def nbytes(self) -> int:
        return self.mel.nbytes + self.left.nbytes + self.right.nbytes + self.weight.nbytes

    def __getitem__(self, place: tuple[slice, slice]) -> StretchedMel:
        """``[:, start:stop]``, with as much of the mel as it takes."""
        left, right, weight = self.left[place[1]], self.right[place[1]], self.weight[place[1]]
        if not len(weight):
            return StretchedMel(self.mel[:, :0], left, right, weight)
        first, end = int(left[0]), int(right[-1]) + 1
        return StretchedMel(self.mel[:, first:end], left - first, right - first, weight)

    def tensor(self) -> Tensor:
        mel = mel_tensor(self.mel)
        places = moved(torch.from_numpy(np.stack([self.left, self.right])), mel.device)
        weight = moved(torch.from_numpy(self.weight), mel.device)
        return mel[:, places[0]].lerp(mel[:, places[1]], weight)


AnyMel = StoredMel | StretchedMel


def mel_tensor(mel: AnyMel) -> Tensor:
    """``[mel, T]``."""
    return mel if isinstance(mel, Tensor) else mel.tensor()


def joined_mel(mels: Sequence[AnyMel]) -> StoredMel:
    """Mels one after the other."""
    first, *others = mels
    if isinstance(first, MelCut) and len(others) == 1 and isinstance(others[0], MelCut):
        return JoinedMel(first, others[0])
    return torch.cat([mel_tensor(mel) for mel in mels], dim=1)
