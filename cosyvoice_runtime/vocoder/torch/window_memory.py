"""Memory that windows of the vocoder read: what utterances carry on, and the mel that came of the flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.audio.audio import MAX_SPEED
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.flow.torch.batched_mel import AnyMel, JoinedMel, MelCut, StoredMel, StretchedMel
from cosyvoice_runtime.vocoder.geometry import context

DOUBLE = torch.float64.itemsize // torch.float32.itemsize
"""Numbers in float32 that one in float64 takes."""


class CarryLayout:
    """Where the parts of what is carried are, in one row of float32 numbers.

    One row, because the host gathers and scatters rows, and each operation costs it as much as another.

    Attributes:
        size: numbers of a row.
        start: of an utterance that begins: zeros.
        no_mel: ``[bins, 0]``.
    """

    def __init__(self, config: VocoderConfig, device: torch.device) -> None:
        around = context(config)
        self._bins, self._frames = config.mel_bins, around.left + around.lookahead
        self._doubles = DOUBLE * (config.num_harmonics + 2)
        self._mel = self._doubles + self._bins * self._frames
        self._end = self._mel + config.hop * around.left
        self.size = self._end + self._end % DOUBLE  # where the next row's float64 may begin
        self.start = VocoderCarry(torch.zeros(self.size, device=device), self)
        self.no_mel = torch.zeros(self._bins, 0, device=device)

    def packed(self, mel: Tensor, source: Tensor, f0: Tensor, cycles: Tensor) -> Tensor:
        """Rows ``[B, size]`` of the parts of several utterances."""
        doubles = torch.cat([f0[:, None], cycles], dim=1).view(torch.float32)
        padding = source.new_zeros(len(mel), self.size - self._end)
        return torch.cat([doubles, mel.flatten(1), source, padding], dim=1)

    def mel(self, flat: Tensor) -> Tensor:
        return flat[..., self._doubles : self._mel].unflatten(-1, (self._bins, self._frames))

    def source(self, flat: Tensor) -> Tensor:
        return flat[..., self._mel : self._end]

    def doubles(self, flat: Tensor) -> Tensor:
        """F0, then cycles."""
        return flat[..., : self._doubles].view(torch.float64)


@cache
def carry_layout(config: VocoderConfig, device: torch.device) -> CarryLayout:
    """Layout of what a vocoder on a device carries: one for all its utterances."""
    return CarryLayout(config, device)


@dataclass(frozen=True, eq=False)
class VocoderCarry:
    """State of one utterance, or of several with rows on axis 0: ``flat [size]`` float32, all its numbers."""

    flat: Tensor
    layout: CarryLayout

    @property
    def mel(self) -> Tensor:
        """``[bins, left + lookahead]`` float32, the newest frames: emitted ones as far as the next window
        looks back, then those that wait. How many there are is known elsewhere.
        """
        return self.layout.mel(self.flat)

    @property
    def source(self) -> Tensor:
        """``[hop * left]`` float32, the source of the emitted frames among them as it was used."""
        return self.layout.source(self.flat)

    @property
    def f0(self) -> Tensor:
        """float64, used for the first frame that waits: it and its phase must not change, because the last
        emitted samples were interpolated towards them.
        """
        return self.layout.doubles(self.flat)[..., 0]

    @property
    def cycles(self) -> Tensor:
        """Its phase: ``[harmonics]`` float64, turns."""
        return self.layout.doubles(self.flat)[..., 1:]

    @property
    def no_mel(self) -> Any:
        return self.layout.no_mel

    @property
    def nbytes(self) -> int:
        return self.flat.nbytes


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
