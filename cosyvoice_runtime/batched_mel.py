"""Mels of several utterances in one tensor, cut and handed on by numbers alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor


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

    def tensor(self) -> Tensor:
        return self.batch[self.row, self.start : self.stop].T


AnyMel = Tensor | MelCut


def mel_tensor(mel: AnyMel) -> Tensor:
    """``[mel, T]``."""
    return mel.tensor() if isinstance(mel, MelCut) else mel
