"""The mel that windows take in, as it came from the flow: its frames are found by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.audio.speed import MAX_SPEED
from cosyvoice_runtime.flow.torch.batched_mel import AnyMel, JoinedMel, MelCut, StoredMel, StretchedMel

SMALL = 2
"""Frames of a cut that are fetched by themselves: a change of speed keeps so many of the chunk before."""
Places = npt.NDArray[np.int64]


class MelPlaces(NamedTuple):
    """Where the frames of a mel are: each lies between two.

    Attributes:
        left, right: int64 ``[n]``.
        weight: float32 ``[n]``, how far to go from the left to the right.
    """

    left: Places
    right: Places
    weight: npt.NDArray[np.float32]


class GivenMel:
    """Memory for mels, which stays where captured calls look.

    Args:
        rows: most mels.
        frames: of each, at most.

    Attributes:
        memory: ``[N, bins]`` float32.
    """

    def __init__(self, rows: int, frames: int, bins: int, device: torch.device) -> None:
        most = int(MAX_SPEED) * frames + 2 * SMALL  # of what is made so many frames by a change of speed
        self.memory = torch.zeros(rows * most, bins, device=device)
        self._first: dict[tuple[int, int], Tensor] = {}

    def take(self, mels: Sequence[AnyMel]) -> list[MelPlaces]:
        """Copy mels ``[bins, n]``; where their frames are then.

        Batches that several are cut from are copied whole: each operation costs the host as much as another.
        """
        stored = [mel.mel if isinstance(mel, StretchedMel) else mel for mel in mels]
        pieces = [_pieces(mel) for mel in stored]
        batches, end = self._take_batches([piece for each in pieces for piece in each])
        loose = [piece for each in pieces for piece in each if _batch(piece) not in batches]
        places: dict[int, Places] = {}
        for piece in loose:
            places[id(piece)] = np.arange(end, end + piece.shape[1])
            end += piece.shape[1]
        self._take_loose(loose, end)
        for each in pieces:
            for piece in each:
                if isinstance(piece, MelCut) and id(piece) not in places:
                    first = batches[id(piece.batch)] + piece.row * piece.batch.shape[1]
                    places[id(piece)] = np.arange(first + piece.start, first + piece.stop)
        return [
            _between(mel, np.concatenate([places[id(piece)] for piece in each]))
            for mel, each in zip(mels, pieces, strict=True)
        ]

    def _take_batches(self, pieces: Sequence[Tensor | MelCut]) -> tuple[dict[int, int], int]:
        """First places of those that are copied whole, and the end of them all."""
        batches = {
            id(piece.batch): piece.batch
            for piece in pieces
            if isinstance(piece, MelCut) and piece.shape[1] > SMALL
        }
        others = sum(piece.shape[1] for piece in pieces if _batch(piece) not in batches)
        size = sum(batch.shape[0] * batch.shape[1] for batch in batches.values())
        if size + others > len(self.memory):
            return {}, 0
        first: dict[int, int] = {}
        end = 0
        for key, batch in batches.items():
            first[key] = end
            rows, frames, _ = batch.shape
            self._part(end, rows, frames).copy_(batch)
            end += rows * frames
        return first, end

    def _take_loose(self, pieces: Sequence[Tensor | MelCut], end: int) -> None:
        frames = [_frames(piece) for piece in pieces if piece.shape[1]]
        if frames:
            torch.cat(frames, out=self.memory[end - sum(map(len, frames)) : end])

    def _part(self, start: int, rows: int, frames: int) -> Tensor:
        """``[rows, frames, bins]``; the first is most often the only one."""
        if not start and (rows, frames) in self._first:
            return self._first[rows, frames]
        part = self.memory[start : start + rows * frames].unflatten(0, (rows, frames))
        if not start:
            self._first[rows, frames] = part
        return part


def _pieces(mel: StoredMel) -> list[Tensor | MelCut]:
    return [mel.first, mel.second] if isinstance(mel, JoinedMel) else [mel]


def _frames(piece: Tensor | MelCut) -> Tensor:
    """``[T, bins]``."""
    return piece.frames() if isinstance(piece, MelCut) else piece.T


def _batch(piece: Tensor | MelCut) -> int | None:
    """The mel that it is cut from."""
    return id(piece.batch) if isinstance(piece, MelCut) else None


def _between(mel: AnyMel, places: Places) -> MelPlaces:
    if isinstance(mel, StretchedMel):
        return MelPlaces(places[mel.left], places[mel.right], mel.weight)
    return MelPlaces(places, places, np.zeros(len(places), np.float32))
